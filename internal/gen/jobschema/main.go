// Command jobschema writes the JSON Schema (2020-12) of job files, docs/job.schema.json. Fields come from the Go types; descriptions and
// limits come from the tables of docs/job-spec.md.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
)

// source is the page that describes the fields, target the generated file, relative to the root of the repository.
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

// document returns the schema for a page.
func document(page string) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(job(parsePage(page)))
	return b.Bytes(), err
}
