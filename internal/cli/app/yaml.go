package app

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/muster-dev/muster/internal/lazyregexp"
)

// YAML converts the JSON of v, so that both formats have the same fields in the same order.
func YAML(v any) ([]byte, error) {
	data, err := toJSON(v, "")
	if err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	n, err := yamlNode(d)
	if err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	data, err = yaml.Dump(n, yaml.WithV3Defaults(), yaml.WithIndent(2), yaml.WithLineWidth(-1))
	if err != nil {
		return nil, err
	}
	// Strings with other characters than those of yamlPlain are in double quotes.
	return escapeUnsafe(string(data), func(b []byte, r rune) []byte { return fmt.Appendf(b, `\U%08x`, r) }), nil
}

// Strings that all versions of YAML read as the same string without quotes.
var (
	yamlPlain    = lazyregexp.New(`^[A-Za-z_/]([A-Za-z0-9_./+@%=, -]*[A-Za-z0-9_./+@%=])?$`)
	yamlReserved = []string{"true", "false", "yes", "no", "on", "off", "y", "n", "null", "nan", "inf"}
)

// yamlNode reads the next value of a JSON document.
func yamlNode(d *json.Decoder) (*yaml.Node, error) {
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	n := &yaml.Node{Kind: yaml.ScalarNode, Value: fmt.Sprint(token)}
	switch t := token.(type) {
	case nil:
		n.Value = "null"
	case string:
		if !yamlPlain.Get().MatchString(t) || slices.Contains(yamlReserved, strings.ToLower(t)) {
			n.Style = yaml.DoubleQuotedStyle
		}
	case json.Delim:
		n.Kind, n.Value = yaml.SequenceNode, ""
		if t == '{' {
			n.Kind = yaml.MappingNode
		}
		for d.More() {
			member, err := yamlNode(d)
			if err != nil {
				return nil, err
			}
			n.Content = append(n.Content, member)
		}
		_, err = d.Token() // the end
	}
	return n, err
}
