package spec

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode/utf8"
)

// fromJSON reads a valid JSON document. It does not use the YAML reader because YAML
// has other rules for escapes and tabs.
func (b *builder) fromJSON(data []byte) *node {
	r := jsonReader{builder: b, data: data, tokens: json.NewDecoder(bytes.NewReader(data)), at: place{1, 1}}
	r.tokens.UseNumber()
	return r.value(0)
}

// jsonReader reads a document that json.Valid accepts.
type jsonReader struct {
	*builder
	data   []byte
	tokens *json.Decoder
	offset int // of at
	at     place
}

// next returns the next token and its place.
func (r *jsonReader) next() (json.Token, place) {
	start := int(r.tokens.InputOffset())
	for strings.IndexByte(" \t\r\n,:", r.data[start]) >= 0 {
		start++
	}
	for r.offset < start {
		c, size := utf8.DecodeRune(r.data[r.offset:])
		r.offset += size
		r.at.column++
		if c == '\n' {
			r.at = place{r.at.line + 1, 1}
		}
	}
	token, _ := r.tokens.Token() // the document is valid
	return token, r.at
}

func (r *jsonReader) value(depth int) *node {
	token, at := r.next()
	n := &node{at: at}
	if r.countNode(at, depth) {
		return n
	}
	switch token := token.(type) {
	case json.Delim:
		if n.kind = list; token == '{' {
			n.kind = object
		}
		r.members(n, depth)
	case string:
		n.kind, n.text = text, token
	case json.Number:
		n.kind, n.text, n.number = number, string(token), string(token)
	case bool:
		if n.kind, n.text = boolean, "false"; token {
			n.text = "true"
		}
	}
	return n
}

// members reads a list or an object up to its end, or until there are too many nodes.
func (r *jsonReader) members(n *node, depth int) {
	seen := make(map[string]bool)
	for r.tokens.More() {
		if n.kind == list {
			n.items = append(n.items, r.value(depth+1))
		} else {
			token, at := r.next()
			name, _ := token.(string) // the document is valid
			r.addField(n, seen, field{name: name, at: at, value: r.value(depth + 1)})
		}
		if r.nodes >= maxNodes {
			return
		}
	}
	_, _ = r.tokens.Token() // the end
}
