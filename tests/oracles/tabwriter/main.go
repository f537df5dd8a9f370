// Writes tests/data/tabwriter.tsv: what Go's text/tabwriter makes of a text, as kubectl's plugins use it.
//
// In: one text a line, as a JSON string. Out: the same line, a tab, and the aligned text as JSON.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"text/tabwriter"
)

func main() {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var text string
		if err := json.Unmarshal(lines.Bytes(), &text); err != nil {
			log.Fatal(err)
		}
		var aligned bytes.Buffer
		writer := tabwriter.NewWriter(&aligned, 0, 0, 2, ' ', 0)
		fmt.Fprint(writer, text)
		writer.Flush()
		result, _ := json.Marshal(aligned.String())
		fmt.Printf("%s\t%s\n", lines.Text(), result)
	}
}
