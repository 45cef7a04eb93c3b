package spec

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/muster-dev/muster"
)

// Limits of a file.
const (
	maxDocuments = 1_000
	maxDepth     = 100
	maxNodes     = 50_000 // after the expansion of aliases
)

// kind is what a node is.
type kind uint8

const (
	null kind = iota
	boolean
	number
	text
	list
	object
	reported // told already: to be passed over in silence
)

// String names a kind in messages.
func (k kind) String() string {
	return [...]string{"nothing", "true or false", "a number", "a text", "a list", "an object", "something else"}[k]
}

// place is where something stands: line and column, both from 1, the column in
// characters.
type place struct{ line, column int }

// node is a piece of a document.
type node struct {
	kind   kind
	at     place
	text   string // of a text; of another scalar as it is spelled
	number string // of a number: its JSON form
	items  []*node
	fields []field
}

// field is one member of an object. Names are unique in it.
type field struct {
	name  string
	at    place
	value *node
}

// scalar reports whether n is one value that has a spelling.
func (n *node) scalar() bool { return n.kind == boolean || n.kind == number || n.kind == text }

// field returns the value of a member, or nil.
func (n *node) field(name string) *node {
	for _, f := range n.fields {
		if f.name == name {
			return f.value
		}
	}
	return nil
}

// find returns where the thing at a path below n stands, such as .a[1].b, or else the nearest thing
// around it. at is where n stands itself.
func (n *node) find(path string, at place) (nearest place, exact bool) {
	if path == "" {
		return at, true
	}
	nearest = at
	if index, rest, ok := strings.Cut(path, "]"); ok && index[0] == '[' {
		if i, err := strconv.Atoi(index[1:]); err == nil && i >= 0 && i < len(n.items) {
			return n.items[i].find(rest, n.items[i].at)
		}
	}
	for _, f := range n.fields {
		rest, ok := strings.CutPrefix(path, ".")
		if !ok {
			break
		}
		if rest, ok = strings.CutPrefix(rest, f.name); !ok || rest != "" && rest[0] != '.' && rest[0] != '[' {
			continue
		}
		if nearest, exact = f.value.find(rest, f.at); exact {
			return nearest, true
		}
	}
	return nearest, false
}

// json returns n as JSON, members in their order.
func (n *node) json() json.RawMessage {
	var b bytes.Buffer
	n.write(&b)
	return b.Bytes()
}

func (n *node) write(b *bytes.Buffer) {
	switch n.kind {
	case null, reported:
		b.WriteString("null")
	case boolean:
		b.WriteString(strings.ToLower(n.text))
	case number:
		b.WriteString(n.number)
	case text:
		quote(b, n.text)
	case list:
		b.WriteByte('[')
		for i, item := range n.items {
			if i > 0 {
				b.WriteByte(',')
			}
			item.write(b)
		}
		b.WriteByte(']')
	case object:
		b.WriteByte('{')
		for i, f := range n.fields {
			if i > 0 {
				b.WriteByte(',')
			}
			quote(b, f.name)
			b.WriteByte(':')
			f.value.write(b)
		}
		b.WriteByte('}')
	}
}

// quote writes s, which is valid UTF-8, as a JSON string.
func quote(b *bytes.Buffer, s string) {
	b.Grow(len(s) + 2)
	b.WriteByte('"')
	written := 0
	for i := range len(s) {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		b.WriteString(s[written:i])
		written = i + 1
		switch c {
		case '"', '\\':
			b.Write([]byte{'\\', c})
		case '\n':
			b.WriteString(`\n`)
		case '\t':
			b.WriteString(`\t`)
		default:
			fmt.Fprintf(b, `\u%04x`, c)
		}
	}
	b.WriteString(s[written:])
	b.WriteByte('"')
}

// jsonSize returns how many bytes n has in the JSON of a spec, but for spaces, commas and the like.
func (n *node) jsonSize() int {
	size := jsonSize(n.text)
	for _, item := range n.items {
		size += item.jsonSize()
	}
	for _, f := range n.fields {
		size += jsonSize(f.name) + f.value.jsonSize()
	}
	return size
}

func jsonSize(s string) int {
	size := len(s)
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"', c == '\\', c == '\n', c == '\t', c == '\r':
			size++
		case c < ' ', c == '<', c == '>', c == '&':
			size += 5
		}
	}
	return size
}

// describe names n in a message: `"abc"`, `5`, "a list".
func (n *node) describe() string {
	switch {
	case n.kind == text:
		return strconv.Quote(truncate(n.text))
	case n.scalar():
		return truncate(n.text)
	default:
		return n.kind.String()
	}
}

// truncate shortens what a document says to what fits into a message.
func truncate(s string) string {
	const limit = 40
	if utf8.RuneCountInString(s) > limit {
		return string([]rune(s)[:limit]) + "…"
	}
	return s
}

// builder makes the nodes of one document, notes what is wrong with them and
// keeps their number in bounds.
type builder struct {
	nodes int
	wrong []muster.FieldError
}

func (b *builder) addProblem(at place, hint, message string) {
	if b.tooManyProblems() {
		return
	}
	b.wrong = append(b.wrong, muster.FieldError{Line: at.line, Column: at.column, Message: message, Hint: hint})
}

// tooManyProblems reports whether more problems were found than are reported at once: those after them are not
// even put into words.
func (b *builder) tooManyProblems() bool { return len(b.wrong) > maxWrong }

// countNode counts a node and reports whether the document is beyond its limits. The
// first time it says so in the list of problems; from then on it is full for good.
func (b *builder) countNode(at place, depth int) bool {
	if b.nodes >= maxNodes {
		return true
	}
	b.nodes++
	switch {
	case depth >= maxDepth:
		b.addProblem(at, "", fmt.Sprintf(nestingLimit, maxDepth))
		b.nodes = maxNodes
	case b.nodes == maxNodes:
		b.addProblem(at, "aliases count each time they are used", fmt.Sprintf("the document has more than %d values", maxNodes))
	}
	return b.nodes >= maxNodes
}

// addField adds a member to an object, unless it is there already.
func (b *builder) addField(n *node, seen map[string]bool, f field) {
	if seen[f.name] {
		b.addProblem(f.at, "keep one of them", "the field "+strconv.Quote(truncate(f.name))+" is there twice")
		return
	}
	seen[f.name] = true
	n.fields = append(n.fields, f)
}
