// Command jobschema writes the JSON Schema (2020-12) of a job file as docs/job.schema.json: the fields are those of the Go types, and what
// they mean and may be is what docs/job-spec.md says.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
)

// source is the page that describes the fields, and target the generated file, from the root of the repository.
const (
	source = "docs/job-spec.md"
	target = "docs/job.schema.json"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	page, err := os.ReadFile(source)
	if err != nil {
		return err
	}
	document, err := document(string(page))
	if err != nil {
		return err
	}
	return os.WriteFile(target, document, 0o644) //nolint:gosec // a public document
}

// document makes the schema, of what the page says.
func document(page string) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(job(parsePage(page)))
	return b.Bytes(), err
}
