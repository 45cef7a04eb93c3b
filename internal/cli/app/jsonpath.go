package app

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"k8s.io/client-go/util/jsonpath"

	"github.com/muster-dev/muster"
)

// jsonPathPrefix begins the value of --output that has a template.
const jsonPathPrefix = "jsonpath="

// checkJSONPath returns a template in kubectl's syntax, such as {.id}{"\t"}{.name}. A template without braces is one path.
func checkJSONPath(text string) (string, error) {
	if text == "" {
		return "", fmt.Errorf("give a template, such as %s{.id}", jsonPathPrefix)
	}
	if !strings.ContainsAny(text, "{}") {
		text = "{." + strings.TrimPrefix(strings.TrimPrefix(text, "$"), ".") + "}"
	}
	if err := jsonpath.New("output").Parse(text); err != nil {
		return "", fmt.Errorf("not a template: %w", err)
	}
	return text, nil
}

// writeJSONPath writes what a template selects of v as one line. Names of fields are those of the JSON output.
func writeJSONPath(w io.Writer, template string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var document any
	if err := d.Decode(&document); err != nil {
		return fmt.Errorf("decode: %w", err)
	}
	var b bytes.Buffer
	if err := executeJSONPath(&b, template, plainNumbers(document)); err != nil {
		return muster.Errorf(muster.Invalid, "-o jsonpath: %w", err)
	}
	if !bytes.HasSuffix(b.Bytes(), []byte("\n")) {
		b.WriteByte('\n')
	}
	return WriteOutput(w, b.Bytes())
}

func executeJSONPath(w io.Writer, template string, document any) (err error) {
	defer func() {
		if v := recover(); v != nil { // the library panics for some templates if a range is empty, such as {range .x}{[0]}{end}
			err = fmt.Errorf("the template does not fit the output: %v", v)
		}
	}()
	t := jsonpath.New("output").AllowMissingKeys(true) // a new one for each: after an empty range it cannot be used again
	if err := t.Parse(template); err != nil {
		return err
	}
	return t.Execute(w, document)
}

// plainNumbers replaces the numbers in a decoded document by int64, so that large ones are written in full, or else by float64.
func plainNumbers(v any) any {
	switch v := v.(type) {
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		f, _ := v.Float64() // out of range: infinite
		return f
	case map[string]any:
		for name, value := range v {
			v[name] = plainNumbers(value)
		}
	case []any:
		for i, value := range v {
			v[i] = plainNumbers(value)
		}
	}
	return v
}
