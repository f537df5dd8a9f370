// Command device-allocator answers what kube-scheduler's own device allocator says of a node. Its arguments are the
// features of the allocator that are enabled, by the names of the fields of structured.Features. It reads one
// question after the other as a line of JSON from standard input: the node, the claims of a pod, all other
// claims, DeviceClasses and ResourceSlices. It writes an answer to each as a line: "can" and the devices, "cannot",
// "error" and why the allocator ends its search for all nodes, or "slow".
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
)

// A search may try very many choices. kube-scheduler ends it after ten seconds.
const longest = time.Second

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

// enabled returns the features with these names. Releases of Kubernetes differ in the features that they have.
func enabled(names []string) (features structured.Features) {
	fields := reflect.ValueOf(&features).Elem()
	for _, name := range names {
		field := fields.FieldByName(name)
		if !field.IsValid() {
			panic("this release has no feature " + name)
		}
		field.SetBool(true)
	}
	return features
}

// What the scheduler counts as allocated: pkg/scheduler/framework/plugins/dynamicresources/allocateddevices.go.
func allocated(claims []*resourceapi.ResourceClaim, features structured.Features) structured.AllocatedState {
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
			if result.ShareID == nil || !features.ConsumableCapacity {
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

func answer(line []byte, features structured.Features, compiled *cel.Cache) string {
	var asked question
	if err := json.Unmarshal(line, &asked); err != nil {
		return "unreadable\t" + err.Error()
	}
	ctx, cancel := context.WithTimeout(context.Background(), longest)
	defer cancel()
	allocator, err := structured.NewAllocator(
		ctx, features, allocated(asked.Others, features), classes(asked.Classes), asked.Slices, compiled)
	if err != nil {
		return "unreadable\t" + err.Error()
	}
	results, err := allocator.Allocate(ctx, asked.Node, asked.Claims)
	if ctx.Err() != nil {
		return "slow\t"
	}
	if err != nil && !isAboutNode(err) {
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
	features := enabled(os.Args[1:])
	compiled := cel.NewCache(1024, cel.Features{EnableConsumableCapacity: features.ConsumableCapacity})
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<28)
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	for lines.Scan() {
		fmt.Fprintln(out, answer(lines.Bytes(), features, compiled))
	}
	if err := lines.Err(); err != nil {
		panic(err)
	}
}
