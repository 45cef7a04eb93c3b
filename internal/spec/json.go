package spec

import (
	"encoding/json"
	"strings"
	"unicode/utf8"
)

// fromJSON reads a valid JSON document. It does not use the YAML reader because YAML
// has other rules for escapes and tabs.
func (b *builder) fromJSON(data []byte) *node {
	b.maxNodes = maxNodesJSON
	r := jsonReader{builder: b, data: string(data), at: place{1, 1}}
	return r.value(0)
}

// jsonReader reads a document that json.Valid accepts.
type jsonReader struct {
	*builder
	data   string
	offset int // of the next token, or of what separates it from the one before
	at     place
}

// peek skips what separates tokens and returns the first byte of the next one.
func (r *jsonReader) peek() byte {
	for strings.IndexByte(" \t\r\n,:", r.data[r.offset]) >= 0 {
		r.skip(1)
	}
	return r.data[r.offset]
}

// skip passes so many bytes.
func (r *jsonReader) skip(n int) {
	for end := r.offset + n; r.offset < end; {
		c, size := utf8.DecodeRuneInString(r.data[r.offset:])
		r.offset += size
		r.at.column++
		if c == '\n' {
			r.at = place{r.at.line + 1, 1}
		}
	}
}

// next returns the text of the next token, a bracket or a scalar, and its place.
func (r *jsonReader) next() (token string, at place) {
	first := r.peek()
	at, token = r.at, r.data[r.offset:]
	n := 1
	switch first {
	case '{', '}', '[', ']':
	case '"':
		for token[n] != '"' {
			if token[n] == '\\' {
				n++
			}
			n++
		}
		n++
	default:
		if n = strings.IndexAny(token, " \t\r\n,]}"); n < 0 {
			n = len(token)
		}
	}
	r.skip(n)
	return token[:n], at
}

// unquote returns the value of a string.
func unquote(token string) (s string) {
	if strings.IndexByte(token, '\\') < 0 {
		return token[1 : len(token)-1]
	}
	_ = json.Unmarshal([]byte(token), &s) // the document is valid
	return s
}

func (r *jsonReader) value(depth int) *node {
	token, at := r.next()
	n := &node{at: at}
	if r.countNode(at, depth) {
		return n
	}
	switch token[0] {
	case '{':
		n.kind = object
		r.members(n, depth)
	case '[':
		n.kind = list
		r.members(n, depth)
	case '"':
		n.kind, n.text = text, unquote(token)
	case 't', 'f':
		n.kind, n.text = boolean, token
	case 'n':
	default:
		n.kind, n.text, n.number = number, token, token
	}
	return n
}

// members reads a list or an object up to its end, or until there are too many nodes.
func (r *jsonReader) members(n *node, depth int) {
	seen := make(map[string]bool)
	for c := r.peek(); c != ']' && c != '}'; c = r.peek() {
		if n.kind == list {
			n.items = append(n.items, r.value(depth+1))
		} else {
			name, at := r.next()
			r.addField(n, seen, field{name: unquote(name), at: at, value: r.value(depth + 1)})
		}
		if r.tooManyNodes() {
			return
		}
	}
	r.skip(1)
}
