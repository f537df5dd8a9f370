// Command toolkit-answers says what NVIDIA's container toolkit adds to many containers. No container
// is started.
//
//	toolkit-answers -config FILE -bundle FOLDER
//
// It reads OCI specifications from standard input, one in a line, and writes an answer for each. The
// runtime is the toolkit's own: it reads its configuration and the specification, changes it, and
// then starts the low-level runtime, which the configuration must name and which must not be a
// program. In mode legacy the toolkit's hook decides, whose files are compiled into this program.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/NVIDIA/nvidia-container-toolkit/internal/logger"
	"github.com/NVIDIA/nvidia-container-toolkit/internal/runtime"
)

// configflag and logInterceptor are what the hook's files need of its main.go.
var configflag = flag.String("config", "", "the toolkit's configuration")

type logInterceptor struct{ logger.NullLogger }

// answer is what one container gets.
type answer struct {
	// Devices are the device files by their path in the container.
	Devices []string `json:"devices"`
	// Asked is what the hook asks libnvidia-container for; nil if it is not asked.
	Asked *nvidiaConfig `json:"asked"`
	// Error says why the container does not start; empty if it does.
	Error string `json:"error"`
}

func main() {
	bundle := flag.String("bundle", "", "a folder of this program alone")
	flag.Parse()
	lines := bufio.NewReader(os.Stdin)
	written := json.NewEncoder(os.Stdout)
	state := filepath.Join(*bundle, "state")
	check(os.WriteFile(state, []byte(fmt.Sprintf(`{"pid": 1, "bundle": %q}`, *bundle)), 0o600))
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		check(os.WriteFile(filepath.Join(*bundle, "config.json"), line, 0o600))
		check(written.Encode(ask(*bundle, state)))
	}
}

// ask has the runtime change the specification in the bundle, and says what it added.
func ask(bundle, state string) (found answer) {
	create := []string{"nvidia-container-runtime", "create", "--bundle", bundle, "container"}
	err := runtime.New().Run(create)
	// The last step fails: there is no low-level runtime.
	if err != nil && !errors.Is(err, syscall.ENOEXEC) && !strings.HasSuffix(err.Error(), syscall.ENOEXEC.Error()) {
		return answer{Error: err.Error()}
	}
	content, err := os.ReadFile(filepath.Join(bundle, "config.json"))
	check(err)
	var spec specs.Spec
	check(json.Unmarshal(content, &spec))
	for _, device := range spec.Linux.Devices {
		found.Devices = append(found.Devices, device.Path)
	}
	if spec.Hooks != nil && len(spec.Hooks.Prestart) > 0 {
		defer func() {
			if reason := recover(); reason != nil {
				found = answer{Error: fmt.Sprint(reason)}
			}
		}()
		found.Asked = askHook(state)
	}
	return found
}

// askHook returns what the hook asks libnvidia-container for. It panics if the hook fails.
func askHook(state string) *nvidiaConfig {
	file, err := os.Open(state)
	check(err)
	defer file.Close()
	os.Stdin = file
	hook, err := getHookConfig()
	check(err)
	return hook.getContainerConfig().Nvidia
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
