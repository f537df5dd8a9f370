package main

import (
	"encoding/binary"
	"encoding/hex"
	"io"
	"os"
	"runtime"
	"strconv"
	"syscall"
	"unsafe"
)

// Package syscall has no number of open_by_handle_at.
var openByHandleAt = map[string]uintptr{"amd64": 304, "arm64": 265}

// readByHandle writes a file to standard output that it opens by its handle: the type and, in
// hexadecimal digits, the bytes that name_to_handle_at gave for it. The path is any file or folder
// on the same file system.
func readByHandle(path, kind, digits string) error {
	place, err := os.Open(path)
	if err != nil {
		return err
	}
	defer place.Close()
	number, err := strconv.ParseUint(kind, 10, 32)
	if err != nil {
		return err
	}
	bytes, err := hex.DecodeString(digits)
	if err != nil {
		return err
	}
	// struct file_handle: the size, the type, and the bytes.
	handle := binary.NativeEndian.AppendUint32(nil, uint32(len(bytes)))
	handle = append(binary.NativeEndian.AppendUint32(handle, uint32(number)), bytes...)
	opened, _, failed := syscall.Syscall(
		openByHandleAt[runtime.GOARCH],
		place.Fd(),
		uintptr(unsafe.Pointer(&handle[0])),
		syscall.O_RDONLY,
	)
	if failed != 0 {
		return os.NewSyscallError("open_by_handle_at", failed)
	}
	_, err = io.Copy(os.Stdout, os.NewFile(opened, "handle"))
	return err
}
