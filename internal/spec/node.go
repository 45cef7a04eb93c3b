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
	maxNodes     = 50_000  // of YAML, after the expansion of aliases
	maxNodesJSON = 120_000 // a job of muster.MaxStages stages with 5 needs each has 90,000
)

// kind is the kind of a node.
type kind uint8

const (
	null kind = iota
	boolean
	number
	text
	list
	object
	reported // has a reported problem: to be skipped
)

// String names a kind in messages.
func (k kind) String() string {
	return [...]string{"nothing", "true or false", "a number", "a string", "a list", "an object", "something else"}[k]
}

// place is a line and a column, both from 1, the column in characters.
type place struct{ line, column int32 }

func newPlace(line, column int) place { return place{int32(line), int32(column)} } // of a file of MaxFile bytes

// placeOf returns the place after a text that begins a file.
func placeOf(before []byte) place {
	start := bytes.LastIndexByte(before, '\n') + 1
	return newPlace(bytes.Count(before, []byte("\n"))+1, utf8.RuneCount(before[start:])+1)
}

// node is a value of a document.
type node struct {
	kind   kind
	at     place
	text   string // of a string; the spelling of another scalar
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

// scalar reports whether n is a scalar other than null.
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

// find returns the place of a path below n, such as .a[1].b, or else that of the nearest value
// around it. at is the place of n.
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

// json returns n as JSON and keeps the order of members.
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

// quote writes s as a JSON string.
func quote(b *bytes.Buffer, s string) {
	e := json.NewEncoder(b)
	e.SetEscapeHTML(false)
	_ = e.Encode(s) // a string can always be encoded
	b.Truncate(b.Len() - 1)
}

// jsonSize returns the size of n in the JSON of a spec, in bytes, without punctuation, or any number over limit.
func (n *node) jsonSize(limit int) int {
	size := jsonSize(n.text)
	for i := 0; i < len(n.items) && size <= limit; i++ {
		size += n.items[i].jsonSize(limit - size)
	}
	for i := 0; i < len(n.fields) && size <= limit; i++ {
		size += jsonSize(n.fields[i].name) + n.fields[i].value.jsonSize(limit-size)
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
		return strconv.Quote(muster.Truncate(n.text))
	case n.scalar():
		return muster.Truncate(n.text)
	default:
		return n.kind.String()
	}
}

// builder creates the nodes of one document, collects problems and limits the number
// of nodes.
type builder struct {
	nodes    int // of the file up to here
	maxNodes int
	wrong    []muster.FieldError
}

func (b *builder) addProblem(at place, hint, message string) {
	if b.tooManyProblems() {
		return
	}
	b.wrong = append(b.wrong, muster.FieldError{Line: int(at.line), Column: int(at.column), Message: message, Hint: hint})
}

// tooManyProblems reports whether there are more problems than are reported at once. Later ones are dropped before
// they are formatted.
func (b *builder) tooManyProblems() bool { return len(b.wrong) > maxWrong }

// countNode counts a node and reports whether the file exceeds its limits, which it
// adds to the problems once.
func (b *builder) countNode(at place, depth int) bool {
	if b.tooManyNodes() {
		return true
	}
	b.nodes++
	switch {
	case depth >= maxDepth:
		b.addProblem(at, "", fmt.Sprintf("the nesting is deeper than %d levels", maxDepth))
		b.nodes = b.maxNodes
	case b.tooManyNodes():
		hint := ""
		if b.maxNodes == maxNodes {
			hint = "aliases count each time they are used; JSON may have more values"
		}
		b.addProblem(at, hint, fmt.Sprintf("the file has more than %d values", b.maxNodes))
	}
	return b.tooManyNodes()
}

func (b *builder) tooManyNodes() bool { return b.nodes >= b.maxNodes }

// addField adds a member to an object. A duplicate is a problem.
func (b *builder) addField(n *node, seen map[string]bool, f field) {
	if seen[f.name] {
		b.addProblem(f.at, "keep one of them", "duplicate field "+strconv.Quote(muster.Truncate(f.name)))
		return
	}
	seen[f.name] = true
	if n.fields == nil {
		n.fields = make([]field, 0, 4)
	}
	n.fields = append(n.fields, f)
}
