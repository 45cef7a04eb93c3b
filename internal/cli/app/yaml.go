package app

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// toYAML goes through JSON, so that both have the same names and forms. Texts
// that could be taken for something else are quoted as in JSON, which is YAML
// too. A library with nicer forms was seen to write what it cannot read back.
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

// value writes the next value. lead is what stands before it on its line: "", or
// something that ends in a key's colon or an item's dash; indent is how far its
// members are indented.
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

// yamlText writes a text, in quotes unless it can only be a text.
func yamlText(s string) (string, error) {
	if yamlPlain.MatchString(s) && !slices.Contains(yamlReserved, strings.ToLower(s)) {
		return s, nil
	}
	quoted, err := toJSON(s, "")
	return string(quoted), err
}
