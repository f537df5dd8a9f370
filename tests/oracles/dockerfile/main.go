// Prints what BuildKit makes of Dockerfiles, JSON strings line by line.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/moby/buildkit/client/llb"
	"github.com/moby/buildkit/client/llb/sourceresolver"
	"github.com/moby/buildkit/frontend/dockerfile/dockerfile2llb"
	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
	"github.com/moby/buildkit/solver/pb"
	"github.com/opencontainers/go-digest"
)

type images struct{}

// Every image of a registry is empty.
func (images) ResolveImageConfig(_ context.Context, ref string, _ sourceresolver.Opt) (string, digest.Digest, []byte, error) {
	return ref, digest.FromString(ref), []byte(`{"architecture":"amd64","os":"linux","config":{}}`), nil
}

var _ llb.ImageMetaResolver = images{}

func environments(text string) ([]map[string]string, error) {
	parsed, err := parser.Parse(strings.NewReader(text))
	if err != nil {
		return nil, err
	}
	stages, _, err := instructions.Parse(parsed.AST, nil)
	if err != nil {
		return nil, err
	}
	lines := strings.SplitAfter(text, "\n")
	found := []map[string]string{}
	for number := range stages {
		end := len(lines)
		if number+1 < len(stages) {
			end = stages[number+1].Location[0].Start.Line - 1
		}
		var options dockerfile2llb.ConvertOpt
		options.MetaResolver = images{}
		capabilities := pb.Caps.CapSet(pb.Caps.All())
		options.LLBCaps = &capabilities
		made, err := dockerfile2llb.Dockerfile2LLB(context.Background(), []byte(strings.Join(lines[:end], "")), options)
		if err != nil {
			return nil, err
		}
		values := map[string]string{}
		for _, entry := range made.Image.Config.Env {
			name, value, _ := strings.Cut(entry, "=")
			if strings.HasSuffix(name, "_VISIBLE_DEVICES") {
				values[name] = value
			}
		}
		found = append(found, values)
	}
	return found, nil
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<24)
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	for lines.Scan() {
		var text string
		if err := json.Unmarshal(lines.Bytes(), &text); err != nil {
			panic(err)
		}
		found, err := environments(text)
		answer := []byte(`"error"`)
		if err == nil {
			answer, _ = json.Marshal(found)
		}
		fmt.Fprintf(out, "%s\t%s\n", lines.Bytes(), answer)
	}
}
