package spec

import (
	"encoding/json"
	"strings"
	"unicode/utf8"
)

// fromJSON reads a valid JSON document. It does not use the YAML reader because YAML
// has other rules for escapes and tabs. Lists and objects are allocated once, with
// their full length, and strings without escapes share the memory of the document.
func (b *builder) fromJSON(data []byte) *node {
	r := jsonReader{builder: b, data: string(data), at: place{1, 1}}
	r.count()
	return r.value(0)
}

// jsonReader reads a document that json.Valid accepts.
type jsonReader struct {
	*builder
	data    string
	next    int     // the byte to read
	lengths []int32 // of the lists and objects not read yet, in order
	offset  int     // of at
	at      place
}

// count fills lengths, at most up to where the reader stops.
func (r *jsonReader) count() {
	var open []int // indexes in lengths
	quoted := false
	for i := 0; i < len(r.data); i++ {
		c := r.data[i]
		switch {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '[' || c == '{':
			if len(r.lengths) > maxNodes {
				return
			}
			open = append(open, len(r.lengths))
			n := int32(1)
			if rest := strings.TrimLeft(r.data[i+1:], jsonSpace); rest[0] == ']' || rest[0] == '}' {
				n = 0
			}
			r.lengths = append(r.lengths, n)
		case c == ']' || c == '}':
			open = open[:len(open)-1]
		case c == ',':
			r.lengths[open[len(open)-1]]++
		}
	}
}

const jsonSpace = " \t\r\n"

// length returns the length of the next list or object.
func (r *jsonReader) length() int {
	n := r.lengths[0]
	r.lengths = r.lengths[1:]
	return int(min(n, maxNodes))
}

// skip skips white space, commas and colons, and returns the next byte.
func (r *jsonReader) skip() byte {
	for r.next < len(r.data) && strings.IndexByte(jsonSpace+",:", r.data[r.next]) >= 0 {
		r.next++
	}
	if r.next == len(r.data) {
		return 0
	}
	return r.data[r.next]
}

// place returns the place of the next byte.
func (r *jsonReader) place() place {
	for r.offset < r.next {
		c, size := utf8.DecodeRuneInString(r.data[r.offset:])
		r.offset += size
		r.at.column++
		if c == '\n' {
			r.at = place{r.at.line + 1, 1}
		}
	}
	return r.at
}

func (r *jsonReader) value(depth int) *node {
	c := r.skip()
	n := &node{at: r.place()}
	if r.countNode(n.at, depth) {
		return n
	}
	switch c {
	case '{':
		r.object(n, depth)
	case '[':
		r.list(n, depth)
	case '"':
		n.kind, n.text = text, r.text()
	default:
		end := strings.IndexAny(r.data[r.next:], jsonSpace+",]}")
		if end < 0 {
			end = len(r.data) - r.next
		}
		word := r.data[r.next : r.next+end]
		r.next += end
		switch c {
		case 'n':
		case 't', 'f':
			n.kind, n.text = boolean, word
		default:
			n.kind, n.text, n.number = number, word, word
		}
	}
	return n
}

func (r *jsonReader) text() string {
	start := r.next
	for r.next++; r.data[r.next] != '"'; r.next++ {
		if r.data[r.next] == '\\' {
			r.next++
		}
	}
	r.next++
	quoted := r.data[start:r.next]
	if strings.IndexByte(quoted, '\\') < 0 {
		return quoted[1 : len(quoted)-1]
	}
	var s string
	_ = json.Unmarshal([]byte(quoted), &s) // it is valid
	return s
}

func (r *jsonReader) list(n *node, depth int) {
	n.kind = list
	r.next++
	if capacity := r.length(); capacity > 0 {
		n.items = make([]*node, 0, capacity)
	}
	for r.skip() != ']' && r.nodes < maxNodes {
		n.items = append(n.items, r.value(depth+1))
	}
	r.next++
}

func (r *jsonReader) object(n *node, depth int) {
	n.kind = object
	r.next++
	capacity := r.length()
	if capacity > 0 {
		n.fields = make([]field, 0, capacity)
	}
	seen := make(map[string]bool, capacity)
	for r.skip() != '}' && r.nodes < maxNodes {
		at := r.place()
		name := r.text()
		r.addField(n, seen, field{name: name, at: at, value: r.value(depth + 1)})
	}
	r.next++
}
