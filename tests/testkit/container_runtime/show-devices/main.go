// Command show-devices writes the character devices below the folders and files in its arguments to
// standard output: a JSON object of device numbers, with what opening the device leads to.
//
// Called as nvidia-container-cli, it stands in for the program of that name: it writes its arguments
// into the file `asked` beside the container's root folder, which is the last of them.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

func main() {
	if filepath.Base(os.Args[0]) == "nvidia-container-cli" {
		root := os.Args[len(os.Args)-1]
		file, err := os.Create(filepath.Join(filepath.Dir(root), "asked"))
		if err != nil {
			panic(err)
		}
		write(file, os.Args[1:])
		return
	}
	devices := map[string]string{}
	for _, top := range os.Args[1:] {
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
