package dag

import "strings"

// part is a piece of a text: a literal with its doubled dollars decoded, or the
// body of a reference.
type part struct {
	text string
	ref  bool
}

// split cuts s into literals and those references whose bodies are ours. No two
// literals are neighbours, and none is empty.
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

// cutBody returns what stands before the closing brace. Bodies do not nest: what
// holds another opening is none.
func cutBody(s string) (body, rest string, closed bool) {
	body, rest, closed = strings.Cut(s, "}")
	return body, rest, closed && !strings.Contains(body, "${")
}

// join is the inverse of split by isElementRef: it writes literals so that they
// are read as literals again.
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

// escape doubles the dollars that would otherwise be decoded or open a reference.
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

// isElementRef says whether a reference is about the own element, for Bind.
func isElementRef(body string) bool {
	return body == "index" || strings.HasPrefix(body, "matrix.")
}
