// Writes tests/data/yaml_scalars.tsv: what kubectl's YAML parser makes of a text.
//
// In: one text a line, as a JSON string. Out: the same line, a tab, and the JSON or "error".
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"log"
	"os"

	"sigs.k8s.io/yaml"
)

const longestLine = 64 << 20

func answer(text string) (result string) {
	defer func() {
		if recover() != nil {
			result = "error"
		}
	}()
	value, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		return "error"
	}
	return string(value)
}

func main() {
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, longestLine)
	for in.Scan() {
		var text string
		if err := json.Unmarshal(in.Bytes(), &text); err != nil {
			log.Fatal(err)
		}
		fmt.Fprintf(out, "%s\t%s\n", in.Text(), answer(text))
	}
	if err := in.Err(); err != nil {
		log.Fatal(err)
	}
}
