package dag

import "strings"

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

// isElementRef reports whether a reference is to the element itself, for Bind.
func isElementRef(body string) bool {
	return body == "index" || strings.HasPrefix(body, "matrix.")
}
