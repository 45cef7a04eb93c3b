package dag

import (
	"encoding/json"
	"maps"
	"strings"

	"github.com/muster-dev/muster"
)

// part is a piece of a text: a literal with its doubled dollars decoded, or the
// body of a reference.
type part struct {
	text string
	ref  bool
}

// split splits s into literals and the references for whose bodies isRef is true. No
// literal is empty, and no two are adjacent.
func split(s string, isRef func(body string) bool) []part {
	var parts []part
	var lit strings.Builder
	flush := func() {
		if lit.Len() > 0 {
			parts = append(parts, part{text: lit.String()})
			lit.Reset()
		}
	}
	for {
		i := strings.Index(s, "${")
		if i < 0 {
			break
		}
		dollars := len(s[:i+1]) - len(strings.TrimRight(s[:i+1], "$"))
		lit.WriteString(s[:i+1-dollars])
		lit.WriteString(strings.Repeat("$", dollars/2))
		s = s[i+2:]
		if dollars%2 == 0 {
			lit.WriteByte('{')
			continue
		}
		body, rest, closed := cutBody(s)
		if !closed || !isRef(body) {
			lit.WriteString("${")
			continue
		}
		flush()
		parts = append(parts, part{text: body, ref: true})
		s = rest
	}
	lit.WriteString(s)
	flush()
	return parts
}

// cutBody returns the text before the closing brace. closed is false if there is no
// brace, or another opening before it.
func cutBody(s string) (body, rest string, closed bool) {
	body, rest, closed = strings.Cut(s, "}")
	return body, rest, closed && !strings.Contains(body, "${")
}

// join is the inverse of split with isElementRef: it escapes literals.
func join(parts []part) string {
	var b, lit strings.Builder
	for _, p := range parts {
		if !p.ref {
			lit.WriteString(p.text)
			continue
		}
		escape(&b, lit.String(), true)
		lit.Reset()
		b.WriteString("${" + p.text + "}")
	}
	escape(&b, lit.String(), false)
	return b.String()
}

// escape doubles the dollars that split would decode or take for a reference.
func escape(b *strings.Builder, lit string, beforeRef bool) {
	for {
		i := strings.IndexByte(lit, '$')
		if i < 0 {
			b.WriteString(lit)
			return
		}
		b.WriteString(lit[:i])
		rest := strings.TrimLeft(lit[i:], "$")
		dollars := lit[i : len(lit)-len(rest)]
		b.WriteString(dollars)
		inner, braced := strings.CutPrefix(rest, "{")
		body, _, closed := cutBody(inner)
		if (rest == "" && beforeRef) || (braced && (len(dollars) > 1 || closed && isElementRef(body))) {
			b.WriteString(dollars)
		}
		lit = rest
	}
}

// isElementRef reports whether a reference is for Bind: to the element itself, or for a URL.
func isElementRef(body string) bool {
	return body == "index" || strings.HasPrefix(body, "matrix.") || isItemReference(body) || isArtifactURL(body)
}

// isItemReference reports whether a reference is to the value of an element of a dynamic array, or to a part of it.
func isItemReference(body string) bool { return body == "item" || strings.HasPrefix(body, "item.") }

// itemField returns the part of an element's value that a reference such as item.path.0 names.
func itemField(item any, body string) (any, error) {
	if body == "item" {
		return item, nil
	}
	path := strings.Split(strings.TrimPrefix(body, "item."), ".")
	for i, key := range path {
		next, ok := member(item, key)
		if !ok {
			return nil, muster.Errorf(muster.Invalid, "it has no %q", muster.Truncate(strings.Join(path[:i+1], ".")))
		}
		item = next
	}
	return item, nil
}

// Bind returns the spec of the element at a position of a stage, from 0: a copy of t,
// the result of Resolve, with ${index}, ${item…}, ${matrix…} and the URLs of artifacts replaced and $${ decoded, and with the value of the element as
// $MUSTER_ITEM in place of those of all elements.
func Bind(t *muster.TaskSpec, element int, url URLFunc) *muster.TaskSpec {
	values := t.Values(element)
	isRef := func(body string) bool { _, ok := values[body]; return ok || isArtifactURL(body) }
	item, hasItem := itemOf(t, element)
	if hasItem {
		isRef = func(body string) bool { return body == "index" || isItemReference(body) || isArtifactURL(body) }
	}
	bound, err := rewrite(t, func(_, text string, whole bool) (any, error) {
		parts := split(text, isRef)
		if whole && len(parts) == 1 && parts[0].ref {
			if isItemReference(parts[0].text) {
				return itemField(item, parts[0].text)
			}
			if isArtifactURL(parts[0].text) {
				return urlOf(parts[0].text, url), nil
			}
			return parseScalar(values[parts[0].text]), nil
		}
		var out strings.Builder
		for _, p := range parts {
			switch {
			case p.ref && isItemReference(p.text):
				part, err := itemField(item, p.text) // Resolve has checked it
				if err != nil {
					return nil, err
				}
				p.text = stringify(part)
			case p.ref && isArtifactURL(p.text):
				p.text = urlOf(p.text, url)
			case p.ref:
				p.text = values[p.text]
			}
			out.WriteString(p.text)
		}
		return out.String(), nil
	})
	if err != nil { // the input is not JSON, which validation excludes
		return t
	}
	if hasItem {
		bound.Array = t.Array.WithoutItems()
		bound.Env = maps.Clone(bound.Env)
		if bound.Env == nil {
			bound.Env = map[string]string{}
		}
		bound.Env[muster.EnvItem] = stringify(item)
	}
	return bound
}

// itemOf returns the value of an element of a stage that was fanned out.
func itemOf(t *muster.TaskSpec, element int) (any, bool) {
	if t.Array == nil || element >= len(t.Array.Items) {
		return nil, false
	}
	v, err := decode(t.Array.Items[element])
	return v, err == nil
}

// PerElement reports whether Bind changes anything. If not, t is the spec of every element.
func PerElement(t *muster.TaskSpec) bool {
	if t.Array != nil && t.Array.Items != nil {
		return true
	}
	values := t.Values(0)
	isRef := func(body string) bool { _, ok := values[body]; return ok || isArtifactURL(body) }
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
