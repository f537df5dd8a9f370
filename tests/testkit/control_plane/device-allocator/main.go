// Command device-allocator answers what kube-scheduler's own device allocator says of a node. It reads one
// question after the other as a line of JSON from standard input: the node, the claims of a pod, all other
// claims, DeviceClasses and ResourceSlices. It writes an answer to each as a line: "can" and the devices, "cannot",
// or "error" and why the allocator ends its search for all nodes.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
)

type question struct {
	Node    *corev1.Node                 `json:"node"`
	Claims  []*resourceapi.ResourceClaim `json:"claims"`
	Others  []*resourceapi.ResourceClaim `json:"others"`
	Classes []*resourceapi.DeviceClass   `json:"classes"`
	Slices  []*resourceapi.ResourceSlice `json:"slices"`
}

type classes []*resourceapi.DeviceClass

func (all classes) List() ([]*resourceapi.DeviceClass, error) {
	return all, nil
}

func (all classes) Get(name string) (*resourceapi.DeviceClass, error) {
	for _, class := range all {
		if class.Name == name {
			return class, nil
		}
	}
	return nil, fmt.Errorf("there is no DeviceClass %q", name)
}

// What is enabled by default in Kubernetes 1.37: pkg/features/kube_features.go.
var features = structured.Features{
	AdminAccess:             true,
	ConsumableCapacity:      true,
	DeviceBindingAndStatus:  true,
	DeviceTaints:            true,
	FractionalCapacityRange: true,
	PartitionableDevices:    true,
	PrioritizedList:         true,
}

// What the scheduler counts as allocated: pkg/scheduler/framework/plugins/dynamicresources/allocateddevices.go.
func allocated(claims []*resourceapi.ResourceClaim) structured.AllocatedState {
	state := structured.AllocatedState{
		AllocatedDevices:         sets.New[structured.DeviceID](),
		AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity:       structured.NewConsumedCapacityCollection(),
	}
	for _, claim := range claims {
		if claim.Status.Allocation == nil {
			continue
		}
		for _, result := range claim.Status.Allocation.Devices.Results {
			if result.AdminAccess != nil && *result.AdminAccess {
				continue
			}
			device := structured.MakeDeviceID(result.Driver, result.Pool, result.Device)
			if result.ShareID == nil {
				state.AllocatedDevices.Insert(device)
				continue
			}
			state.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(device, result.ShareID))
			if result.ConsumedCapacity != nil {
				state.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(device, result.ConsumedCapacity))
			}
		}
	}
	return state
}

func answer(line []byte, compiled *cel.Cache) string {
	var asked question
	if err := json.Unmarshal(line, &asked); err != nil {
		return "unreadable\t" + err.Error()
	}
	ctx := context.Background()
	allocator, err := structured.NewAllocator(
		ctx, features, allocated(asked.Others), classes(asked.Classes), asked.Slices, compiled)
	if err != nil {
		return "unreadable\t" + err.Error()
	}
	results, err := allocator.Allocate(ctx, asked.Node, asked.Claims)
	if err != nil && !errors.Is(err, structured.ErrFailedAllocationOnNode) {
		return "error\t" + strings.Join(strings.Fields(err.Error()), " ")
	}
	if len(results) != len(asked.Claims) {
		return "cannot\t"
	}
	given := []string{}
	for _, result := range results {
		for _, device := range result.Devices.Results {
			given = append(given, fmt.Sprintf("%s=%s/%s/%s", device.Request, device.Driver, device.Pool, device.Device))
		}
	}
	return "can\t" + strings.Join(given, " ")
}

func main() {
	compiled := cel.NewCache(1024, cel.Features{EnableConsumableCapacity: true})
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<28)
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	for lines.Scan() {
		fmt.Fprintln(out, answer(lines.Bytes(), compiled))
	}
	if err := lines.Err(); err != nil {
		panic(err)
	}
}
