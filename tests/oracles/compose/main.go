// Prints what Docker Compose makes of compose files, JSON strings line by line.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
)

type reservation struct {
	Driver       string   `json:"driver,omitempty"`
	Capabilities []string `json:"capabilities,omitempty"`
	IDs          []string `json:"ids,omitempty"`
}

type service struct {
	Environment map[string]*string `json:"environment,omitempty"`
	Privileged  bool               `json:"privileged,omitempty"`
	Runtime     string             `json:"runtime,omitempty"`
	Devices     []string           `json:"devices,omitempty"`
	Volumes     [][2]string        `json:"volumes,omitempty"`
	Gpus        int                `json:"gpus,omitempty"`
	Reserved    []reservation      `json:"reserved,omitempty"`
}

func load(text string) (map[string]service, error) {
	project, err := loader.LoadWithContext(context.Background(), types.ConfigDetails{
		WorkingDir:  "/w",
		ConfigFiles: []types.ConfigFile{{Filename: "/w/compose.yaml", Content: []byte(text)}},
		Environment: types.Mapping{},
	}, func(o *loader.Options) {
		o.SetProjectName("p", true)
		o.SkipConsistencyCheck = true
		o.Profiles = []string{"*"}
	})
	if err != nil {
		return nil, err
	}
	found := map[string]service{}
	for name, s := range project.Services {
		one := service{Environment: s.Environment, Privileged: s.Privileged, Runtime: s.Runtime, Gpus: len(s.Gpus)}
		for _, d := range s.Devices {
			one.Devices = append(one.Devices, d.Source)
		}
		for _, v := range s.Volumes {
			one.Volumes = append(one.Volumes, [2]string{v.Source, v.Target})
		}
		if s.Deploy != nil && s.Deploy.Resources.Reservations != nil {
			for _, d := range s.Deploy.Resources.Reservations.Devices {
				one.Reserved = append(one.Reserved, reservation{d.Driver, d.Capabilities, d.IDs})
			}
		}
		found[name] = one
	}
	return found, nil
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		var text string
		if err := json.Unmarshal(lines.Bytes(), &text); err != nil {
			panic(err)
		}
		found, err := load(text)
		answer := []byte(`"error"`)
		if err == nil {
			answer, _ = json.Marshal(found)
		}
		fmt.Printf("%s\t%s\n", lines.Bytes(), answer)
	}
}
