// Command openapi writes web/openapi.json, the OpenAPI document of the HTTP API, from the types of its handlers. The types of the web
// client are generated from it.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"

	"github.com/muster-dev/muster/internal/api"
)

// target is the generated file, relative to the root of the repository.
const target = "web/openapi.json"

func main() {
	document, err := document()
	if err == nil {
		err = os.WriteFile(target, document, 0o644) //nolint:gosec // a public document
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
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
