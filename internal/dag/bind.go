package dag

import (
	"encoding/json"
	"strings"

	"github.com/muster-dev/muster"
)

// Bind returns the spec of the element at a position of a stage, from 0: a copy of t,
// the result of Resolve, with ${index} and ${matrix…} replaced and $${ decoded.
func Bind(t *muster.TaskSpec, element int) *muster.TaskSpec {
	values := t.Values(element)
	isRef := func(body string) bool { _, ok := values[body]; return ok }
	bound, err := rewrite(t, func(_, text string, whole bool) (any, error) {
		parts := split(text, isRef)
		if whole && len(parts) == 1 && parts[0].ref {
			return parseScalar(values[parts[0].text]), nil
		}
		var out strings.Builder
		for _, p := range parts {
			if p.ref {
				p.text = values[p.text]
			}
			out.WriteString(p.text)
		}
		return out.String(), nil
	})
	if err != nil { // the input is not JSON, which validation excludes
		return t
	}
	return bound
}

// PerElement reports whether Bind changes anything. If not, t is the spec of every element.
func PerElement(t *muster.TaskSpec) bool {
	values := t.Values(0)
	isRef := func(body string) bool { _, ok := values[body]; return ok }
	changes := false
	_, err := rewrite(t, func(_, text string, _ bool) (any, error) {
		parts := split(text, isRef)
		if text != "" && (len(parts) != 1 || parts[0] != part{text: text}) {
			changes = true
		}
		return text, nil
	})
	return err == nil && changes
}

// parseScalar returns a JSON number, true or false if s is one, else s.
func parseScalar(s string) any {
	v, err := decode([]byte(s))
	if err != nil || !json.Valid([]byte(s)) {
		return s
	}
	switch v := v.(type) {
	case json.Number, bool:
		return v
	default:
		return s
	}
}
