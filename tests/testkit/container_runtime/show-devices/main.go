// Command show-devices writes the character devices below the folders and files in its arguments to
// standard output: a JSON object of device numbers, with what opening the device leads to.
//
// The argument `mounts` stands for what is mounted into the container, of a whole root folder its
// devices.
//
// Called as nvidia-container-cli, it stands in for the program of that name: it writes its arguments
// into the file `asked` beside the container's root folder, which is the last of them. Called as
// pause, it waits for a signal to end. Called as read-by-handle, it does what handle.go says.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
)

func main() {
	switch filepath.Base(os.Args[0]) {
	case "pause":
		end := make(chan os.Signal, 1)
		signal.Notify(end, syscall.SIGINT, syscall.SIGTERM)
		<-end
		return
	case "nvidia-container-cli":
		root := os.Args[len(os.Args)-1]
		file, err := os.Create(filepath.Join(filepath.Dir(root), "asked"))
		if err != nil {
			panic(err)
		}
		write(file, os.Args[1:])
		return
	case "read-by-handle":
		if err := readByHandle(os.Args[1], os.Args[2], os.Args[3]); err != nil {
			fmt.Println(err)
		}
		return
	}
	tops := os.Args[1:]
	if len(tops) == 1 && tops[0] == "mounts" {
		tops = mounts()
	}
	devices := map[string]string{}
	for _, top := range tops {
		err := filepath.WalkDir(top, func(path string, _ fs.DirEntry, err error) error {
			if err != nil {
				return nil
			}
			// The entry of a folder has the type of what a mount hides.
			var status syscall.Stat_t
			if syscall.Lstat(path, &status) == nil && status.Mode&syscall.S_IFMT == syscall.S_IFCHR {
				devices[number(status.Rdev)] = open(path)
			}
			return nil
		})
		if err != nil {
			panic(err)
		}
	}
	write(os.Stdout, devices)
}

// mounts are the folders and files that are mounted into this container.
func mounts() []string {
	content, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		panic(err)
	}
	found := []string{}
	for _, line := range strings.Split(strings.TrimSpace(string(content)), "\n") {
		path := strings.Fields(line)[4]
		if path == "/" || strings.HasPrefix(path+"/", "/proc/") || strings.HasPrefix(path+"/", "/sys/") {
			continue
		}
		if _, err := os.Stat(filepath.Join(path, "proc")); err == nil {
			path = filepath.Join(path, "dev")
		}
		found = append(found, path)
	}
	return found
}

// number is a device number as ls shows it, such as 195:0.
func number(device uint64) string {
	major := (device>>8)&0xfff | (device>>32)&^0xfff
	minor := device&0xff | (device>>12)&^0xff
	return fmt.Sprintf("%d:%d", major, minor)
}

// open says whether the kernel lets this process open the device: "no driver" if it does, but no
// driver is loaded, "denied" if the device is not one of the container's, and "open" otherwise.
func open(path string) string {
	file, err := os.OpenFile(path, os.O_RDWR|syscall.O_NONBLOCK, 0)
	switch {
	case err == nil:
		file.Close()
		return "open"
	case errors.Is(err, syscall.ENXIO), errors.Is(err, syscall.ENODEV):
		return "no driver"
	case errors.Is(err, syscall.EPERM):
		return "denied"
	}
	return err.Error()
}

func write(file *os.File, value any) {
	if err := json.NewEncoder(file).Encode(value); err != nil {
		panic(err)
	}
}
