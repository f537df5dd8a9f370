// Reads one JSON text per line, an expression that selects devices, and says what the API server makes of it.
//
// Columns: the text, then "ok" or "error" for its compiler, and what the scheduler finds for the device below:
// "true", "false", or "fails".
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apiserver/pkg/cel/environment"
	dracel "k8s.io/dynamic-resource-allocation/cel"
)

func text(value string) resourceapi.DeviceAttribute {
	return resourceapi.DeviceAttribute{StringValue: &value}
}

func version(value string) resourceapi.DeviceAttribute {
	return resourceapi.DeviceAttribute{VersionValue: &value}
}

// A whole card, as NVIDIA's driver publishes it.
var device = dracel.Device{
	Driver: "gpu.nvidia.com",
	Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
		"type":                            text("gpu"),
		"uuid":                            text("GPU-4404041a-04cf-1ccf-9e70-f139a9b1e23c"),
		"productName":                     text("NVIDIA A100-SXM4-80GB"),
		"brand":                           text("Nvidia"),
		"architecture":                    text("Ampere"),
		"cudaComputeCapability":           version("8.0.0"),
		"driverVersion":                   version("580.65.6"),
		"cudaDriverVersion":               version("13.0.0"),
		"addressingMode":                  text("HMM"),
		"resource.kubernetes.io/pcieRoot": text("pci0000:00"),
	},
	Capacity: map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{
		"memory": {Value: resource.MustParse("80Gi")},
	},
}

func result(raw []byte) string {
	var expression string
	if err := json.Unmarshal(raw, &expression); err != nil {
		return "not a text\t"
	}
	kind := environment.NewExpressions
	compiler := dracel.GetCompiler(dracel.Features{EnableConsumableCapacity: true})
	compiled := compiler.CompileCELExpression(expression, dracel.Options{EnvType: &kind})
	if compiled.Error != nil {
		return "error\t"
	}
	matches, _, err := compiled.DeviceMatches(context.Background(), device)
	if err != nil {
		return "ok\tfails"
	}
	return fmt.Sprintf("ok\t%t", matches)
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<28)
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	for lines.Scan() {
		fmt.Fprintf(out, "%s\t%s\n", lines.Text(), result(lines.Bytes()))
		out.Flush()
	}
	if err := lines.Err(); err != nil {
		panic(err)
	}
}
