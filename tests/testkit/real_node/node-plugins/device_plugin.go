package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// Resource is an extended resource of the node.
type Resource struct {
	Name string `json:"name"`
	// Folder has the kubelet's socket.
	Folder string `json:"folder"`
	// Strategy is how a container is told its devices, with the names that NVIDIA's device plugin has
	// for its DEVICE_LIST_STRATEGY: envvar, volume-mounts, cdi-annotations or cdi-cri.
	Strategy string `json:"strategy"`
	// Devices are the names of the devices. Before `::` is the name that the container is told: so a
	// card can be offered several times.
	Devices   []string `json:"devices"`
	Unhealthy []string `json:"unhealthy"`
}

const (
	visible    = "NVIDIA_VISIBLE_DEVICES"
	listFolder = "/var/run/nvidia-container-devices"
	cdiKind    = "nvidia.com/gpu"
)

func serveResources(resources []Resource) error {
	failed := make(chan error)
	for _, resource := range resources {
		go func() { failed <- resource.serve() }()
	}
	return <-failed
}

// serve serves the resource. A kubelet removes the sockets of all plugins when it starts, and
// expects them to register again; one that starts while a plugin registers removes the socket that
// it registers, too.
func (resource Resource) serve() error {
	name := strings.ReplaceAll(resource.Name, "/", "_") + ".sock"
	socket := filepath.Join(resource.Folder, name)
	for {
		listener, err := net.Listen("unix", socket)
		if err != nil {
			return err
		}
		server := grpc.NewServer()
		api.RegisterDevicePluginServer(server, plugin{resource: resource})
		go server.Serve(listener)
		for registered := false; exists(socket); time.Sleep(100 * time.Millisecond) {
			registered = registered || resource.register(name) == nil
		}
		server.Stop()
	}
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

func (resource Resource) register(endpoint string) error {
	target := "unix://" + filepath.Join(resource.Folder, "kubelet.sock")
	connection, err := grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	_, err = api.NewRegistrationClient(connection).Register(context.Background(), &api.RegisterRequest{
		Version:      api.Version,
		Endpoint:     endpoint,
		ResourceName: resource.Name,
		Options:      &api.DevicePluginOptions{},
	})
	return err
}

type plugin struct {
	api.UnimplementedDevicePluginServer
	resource Resource
}

func (p plugin) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
	return &api.DevicePluginOptions{}, nil
}

func (p plugin) ListAndWatch(_ *api.Empty, stream grpc.ServerStreamingServer[api.ListAndWatchResponse]) error {
	health := map[string]string{}
	for _, name := range p.resource.Unhealthy {
		health[name] = api.Unhealthy
	}
	answer := &api.ListAndWatchResponse{}
	for _, name := range p.resource.Devices {
		device := &api.Device{ID: name, Health: api.Healthy}
		if found, ok := health[name]; ok {
			device.Health = found
		}
		answer.Devices = append(answer.Devices, device)
	}
	if err := stream.Send(answer); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

func (p plugin) Allocate(_ context.Context, request *api.AllocateRequest) (*api.AllocateResponse, error) {
	answer := &api.AllocateResponse{}
	for _, container := range request.ContainerRequests {
		given, err := p.resource.given(container.DevicesIds)
		if err != nil {
			return nil, err
		}
		answer.ContainerResponses = append(answer.ContainerResponses, given)
	}
	return answer, nil
}

// given is what a container with these devices gets.
func (resource Resource) given(names []string) (*api.ContainerAllocateResponse, error) {
	cards := []string{}
	seen := map[string]bool{}
	for _, name := range names {
		card, _, _ := strings.Cut(name, "::")
		if !seen[card] {
			seen[card] = true
			cards = append(cards, card)
		}
	}
	answer := &api.ContainerAllocateResponse{}
	switch resource.Strategy {
	case "envvar":
		answer.Envs = map[string]string{visible: strings.Join(cards, ",")}
	case "volume-mounts":
		answer.Envs = map[string]string{visible: listFolder}
		for _, card := range cards {
			path := filepath.Join(listFolder, card)
			answer.Mounts = append(answer.Mounts, &api.Mount{HostPath: "/dev/null", ContainerPath: path})
		}
	case "cdi-annotations":
		devices := []string{}
		for _, card := range cards {
			devices = append(devices, cdiKind+"="+card)
		}
		key := "cdi.k8s.io/nvidia-device-plugin_" + strings.Join(cards, "-")
		answer.Annotations = map[string]string{key: strings.Join(devices, ",")}
	case "cdi-cri":
		for _, card := range cards {
			answer.CdiDevices = append(answer.CdiDevices, &api.CDIDevice{Name: cdiKind + "=" + card})
		}
	default:
		return nil, fmt.Errorf("unknown strategy %s", resource.Strategy)
	}
	return answer, nil
}
