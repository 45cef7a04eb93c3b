package app

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// toYAML converts the JSON of v, so that both formats have the same fields. Strings that are not plainly
// text are quoted as in JSON, which is valid YAML. goccy/go-yaml writes documents that it cannot read back.
func toYAML(v any) ([]byte, error) {
	data, err := toJSON(v, "")
	if err != nil {
		return nil, err
	}
	w := yamlWriter{in: json.NewDecoder(bytes.NewReader(data))}
	w.in.UseNumber()
	if err := w.value("", ""); err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	return w.out.Bytes(), nil
}

// yamlWriter rewrites a JSON document as YAML blocks.
type yamlWriter struct {
	in  *json.Decoder
	out bytes.Buffer
}

// value writes the next value. lead precedes it on its line: "", or a text that ends in the colon of a key
// or the dash of an item; indent is the indentation of its members.
func (w *yamlWriter) value(lead, indent string) error {
	token, err := w.in.Token()
	if err != nil {
		return err
	}
	switch t := token.(type) {
	case json.Delim:
		return w.block(t == '{', lead, indent)
	case string:
		return w.scalar(lead, t)
	case nil:
		w.line(lead, "null")
	default:
		w.line(lead, fmt.Sprint(t))
	}
	return nil
}

func (w *yamlWriter) block(object bool, lead, indent string) error {
	first := ""
	switch {
	case !w.in.More() && object:
		w.line(lead, "{}")
	case !w.in.More():
		w.line(lead, "[]")
	case strings.HasSuffix(lead, ":"):
		w.line(lead, "")
	case lead != "":
		first = lead + " " // beside the dash
	}
	for w.in.More() {
		start := indent
		if first != "" {
			start, first = first, ""
		}
		member := "-"
		if object {
			key, err := w.in.Token()
			if err != nil {
				return err
			}
			if member, err = yamlText(fmt.Sprint(key)); err != nil {
				return err
			}
			member += ":"
		}
		if err := w.value(start+member, indent+"  "); err != nil {
			return err
		}
	}
	_, err := w.in.Token() // the end
	return err
}

func (w *yamlWriter) scalar(lead, s string) error {
	text, err := yamlText(s)
	w.line(lead, text)
	return err
}

func (w *yamlWriter) line(lead, text string) {
	if lead != "" && text != "" {
		lead += " "
	}
	w.out.WriteString(lead + text + "\n")
}

var (
	yamlPlain    = regexp.MustCompile(`^[A-Za-z_/]([A-Za-z0-9_./+@%=, -]*[A-Za-z0-9_./+@%=])?$`)
	yamlReserved = []string{"true", "false", "yes", "no", "on", "off", "y", "n", "null", "nan", "inf"}
)

// yamlText returns s, quoted unless YAML reads it as the same string.
func yamlText(s string) (string, error) {
	if yamlPlain.MatchString(s) && !slices.Contains(yamlReserved, strings.ToLower(s)) {
		return s, nil
	}
	quoted, err := toJSON(s, "")
	return string(quoted), err
}
