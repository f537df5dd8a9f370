// Command node-plugins serves GPUs to the kubelet of a node for tests. No GPU is needed.
//
//	node-plugins device-plugin CONFIG
//	node-plugins dra-driver CONFIG
//
// CONFIG is a JSON file: see Resource and Driver. Both run until they are killed.
package main

import (
	"encoding/json"
	"fmt"
	"os"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	if len(arguments) != 2 {
		return fmt.Errorf("usage: node-plugins device-plugin|dra-driver CONFIG")
	}
	content, err := os.ReadFile(arguments[1])
	if err != nil {
		return err
	}
	switch arguments[0] {
	case "device-plugin":
		var resources []Resource
		if err := json.Unmarshal(content, &resources); err != nil {
			return err
		}
		return serveResources(resources)
	case "dra-driver":
		var driver Driver
		if err := json.Unmarshal(content, &driver); err != nil {
			return err
		}
		return driver.run()
	}
	return fmt.Errorf("unknown command %s", arguments[0])
}
