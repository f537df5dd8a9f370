// Prints what docker asks its daemon for, for the words of its command line, JSON lists line by
// line. The daemon is this program: it accepts everything and starts nothing.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

type mount struct{ Source, Target string }

// What API servers of docker call a container.
type container struct {
	Env        []string
	HostConfig struct {
		Runtime        string
		Privileged     bool
		Binds          []string
		Mounts         []mount
		Devices        []struct{ PathOnHost string }
		DeviceRequests []struct {
			Driver       string
			DeviceIDs    []string
			Capabilities [][]string
		}
	}
}

type answer struct {
	Gpus       bool     `json:"gpus"`
	Runtime    string   `json:"runtime"`
	Privileged bool     `json:"privileged"`
	Env        []string `json:"env"`
	Devices    []string `json:"devices"`
	Binds      []string `json:"binds"`
	Mounts     []mount  `json:"mounts"`
}

var asked *container

func serve(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Api-Version", "1.47")
	w.Header().Set("Ostype", "linux")
	if strings.HasSuffix(r.URL.Path, "/containers/create") {
		asked = &container{}
		if err := json.NewDecoder(r.Body).Decode(asked); err != nil {
			panic(err)
		}
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, `{"Id": "`+strings.Repeat("a", 64)+`"}`)
	}
}

func ask(words []string, folder string) any {
	asked = nil
	command := exec.Command(os.Args[1], words...)
	command.Env = []string{"DOCKER_HOST=unix://" + folder + "/socket", "DOCKER_CONFIG=" + folder}
	_ = command.Run() // its status is that of a container that never ran
	if asked == nil {
		return "error"
	}
	host := asked.HostConfig
	made := answer{
		Runtime: host.Runtime, Privileged: host.Privileged, Env: asked.Env, Binds: host.Binds,
		Mounts: host.Mounts,
	}
	for _, device := range host.Devices {
		made.Devices = append(made.Devices, device.PathOnHost)
	}
	for _, request := range host.DeviceRequests {
		made.Gpus = made.Gpus || len(request.Capabilities) > 0
		if request.Driver == "cdi" {
			made.Devices = append(made.Devices, request.DeviceIDs...)
		}
	}
	return made
}

func main() {
	folder, err := os.MkdirTemp("", "")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(folder)
	listener, err := net.Listen("unix", filepath.Join(folder, "socket"))
	if err != nil {
		panic(err)
	}
	go func() { _ = http.Serve(listener, http.HandlerFunc(serve)) }()
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var words []string
		if err := json.Unmarshal(lines.Bytes(), &words); err != nil {
			panic(err)
		}
		found, _ := json.Marshal(ask(words, folder))
		fmt.Printf("%s\t%s\n", lines.Bytes(), found)
	}
}
