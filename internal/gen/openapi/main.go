// Command openapi writes the OpenAPI document of the HTTP API, from the types of its handlers, as web/openapi.json, from which
// the types of the web client are generated, and a list of its operations as docs/api.md.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/muster-dev/muster/internal/api"
)

// target is the generated file, relative to the root of the repository.
const target = "web/openapi.json"

func main() {
	document, err := document()
	if err == nil {
		err = errors.Join(write(target, document), write("docs/api.md", []byte(page())))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func write(path string, content []byte) error {
	return os.WriteFile(path, content, 0o644) //nolint:gosec // a public document
}

func document() ([]byte, error) {
	compact, err := json.Marshal(api.Document())
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if err := json.Indent(&b, compact, "", "  "); err != nil {
		return nil, err
	}
	b.WriteByte('\n')
	return b.Bytes(), nil
}
