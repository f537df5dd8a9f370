// Command shim-client asks containerd's shims, by their sockets in a folder, to start another
// process in a container, whose output a program of the node shall take.
//
// Its arguments are the folder, the ID of the container, and the URI of the program. It writes what
// each shim answered. It speaks ttrpc with the standard library alone: a request of three fields.
package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"time"
)

const (
	service     = "containerd.task.v3.Task"
	process     = `{"args":["/pause"],"cwd":"/","user":{"uid":0,"gid":0}}`
	processType = "types.containerd.io/opencontainers/runtime-spec/1/Process"
	execution   = "shim-client"
	patience    = 20 * time.Second
)

func main() {
	sockets, err := filepath.Glob(filepath.Join(os.Args[1], "*"))
	if err != nil {
		panic(err)
	}
	container, program := os.Args[2], os.Args[3]
	spec := join(text(1, processType), text(2, process))
	ids := join(text(1, container), text(2, execution))
	for _, socket := range sockets {
		for number, request := range []struct{ method, payload string }{
			{"Exec", join(ids, text(5, program), text(7, spec))},
			{"Start", ids},
		} {
			answer, err := call(socket, uint32(2*number+1), request.method, request.payload)
			fmt.Printf("%s: %q %v\n", request.method, answer, err)
		}
	}
}

// call sends a request to the socket and returns the answer, still encoded.
func call(socket string, stream uint32, method, payload string) (string, error) {
	connection, err := net.Dial("unix", socket)
	if err != nil {
		return "", err
	}
	defer connection.Close()
	if err := connection.SetDeadline(time.Now().Add(patience)); err != nil {
		return "", err
	}
	namespace := join(text(1, "containerd-namespace-ttrpc"), text(2, "k8s.io"))
	request := join(text(1, service), text(2, method), text(3, payload), text(5, namespace))
	header := make([]byte, 10)
	binary.BigEndian.PutUint32(header, uint32(len(request)))
	binary.BigEndian.PutUint32(header[4:], stream)
	header[8] = 1 // a request
	if _, err := connection.Write(append(header, request...)); err != nil {
		return "", err
	}
	if _, err := io.ReadFull(connection, header); err != nil {
		return "", err
	}
	answer := make([]byte, binary.BigEndian.Uint32(header))
	_, err = io.ReadFull(connection, answer)
	return string(answer), err
}

// text is a field of a message of protobuf that holds a text or another message.
func text(field int, value string) string {
	key := binary.AppendUvarint(nil, uint64(field<<3|2))
	return string(binary.AppendUvarint(key, uint64(len(value)))) + value
}

func join(parts ...string) string {
	joined := ""
	for _, part := range parts {
		joined += part
	}
	return joined
}
