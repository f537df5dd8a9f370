// Says in which texts Go finds regular expressions, as `matches` in CEL does.
//
// In: {"patterns": […], "texts": […]}, JSON. Out: a JSON list for each pattern, with the places of the texts
// in which it is found.
package main

import (
	"encoding/json"
	"log"
	"os"
	"regexp"
)

func main() {
	var asked struct{ Patterns, Texts []string }
	if err := json.NewDecoder(os.Stdin).Decode(&asked); err != nil {
		log.Fatal(err)
	}
	found := make([][]int, len(asked.Patterns))
	for number, pattern := range asked.Patterns {
		compiled := regexp.MustCompile(pattern)
		found[number] = []int{}
		for place, text := range asked.Texts {
			if compiled.MatchString(text) {
				found[number] = append(found[number], place)
			}
		}
	}
	if err := json.NewEncoder(os.Stdout).Encode(found); err != nil {
		log.Fatal(err)
	}
}
