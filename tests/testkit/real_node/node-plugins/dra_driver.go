package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	resource "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
)

// Driver is a driver for dynamic resource allocation on one node.
type Driver struct {
	Name       string `json:"name"`
	Node       string `json:"node"`
	Kubeconfig string `json:"kubeconfig"`
	// Registry and Folder are the kubelet's folder of plugins' sockets, and the driver's own.
	Registry string `json:"registry"`
	Folder   string `json:"folder"`
	// Devices are those of the ResourceSlice. The CDI device of each has the same name, after the kind
	// nvidia.com/gpu, without the prefix `gpu-`.
	Devices []resource.Device `json:"devices"`
}

func (d Driver) run() error {
	config, err := clientcmd.BuildConfigFromFlags("", d.Kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(d.Folder, 0o755); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	helper, err := kubeletplugin.Start(ctx, d,
		kubeletplugin.KubeClient(client),
		kubeletplugin.NodeName(d.Node),
		kubeletplugin.DriverName(d.Name),
		kubeletplugin.RegistrarDirectoryPath(d.Registry),
		kubeletplugin.PluginDataDirectoryPath(d.Folder),
	)
	if err != nil {
		return err
	}
	defer helper.Stop()
	slices := []resourceslice.Slice{{Devices: d.Devices}}
	pools := map[string]resourceslice.Pool{d.Node: {Slices: slices}}
	if err := helper.PublishResources(ctx, resourceslice.DriverResources{Pools: pools}); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// PrepareResourceClaims gives the containers of each claim the CDI devices of its allocation.
func (d Driver) PrepareResourceClaims(
	_ context.Context, claims []*resource.ResourceClaim,
) (map[types.UID]kubeletplugin.PrepareResult, error) {
	prepared := map[types.UID]kubeletplugin.PrepareResult{}
	for _, claim := range claims {
		result := kubeletplugin.PrepareResult{}
		for _, allocated := range claim.Status.Allocation.Devices.Results {
			if allocated.Driver == d.Name {
				result.Devices = append(result.Devices, kubeletplugin.Device{
					Requests:     []string{allocated.Request},
					PoolName:     allocated.Pool,
					DeviceName:   allocated.Device,
					CDIDeviceIDs: []string{cdiKind + "=" + allocated.Device[len("gpu-"):]},
				})
			}
		}
		prepared[claim.UID] = result
	}
	return prepared, nil
}

// UnprepareResourceClaims has nothing to undo.
func (d Driver) UnprepareResourceClaims(
	_ context.Context, claims []kubeletplugin.NamespacedObject,
) (map[types.UID]error, error) {
	undone := map[types.UID]error{}
	for _, claim := range claims {
		undone[claim.UID] = nil
	}
	return undone, nil
}

// HandleError is called for errors in the background.
func (d Driver) HandleError(_ context.Context, err error, message string) {
	fmt.Fprintln(os.Stderr, message, err)
}

// WatchHealthStatus says that nobody watches the health of the devices.
func (d Driver) WatchHealthStatus(context.Context, chan<- kubeletplugin.DeviceHealthReport) error {
	return kubeletplugin.ErrHealthNotSupported
}
