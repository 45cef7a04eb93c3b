package spec

import (
	"cmp"
	"fmt"

	"github.com/goccy/go-yaml/token"

	"github.com/muster-dev/muster"
)

// Limits of a YAML file. The parser recurses for every level and stores every
// node's path; its time grows with the square of the documents in a file and of
// the fields that an object has line by line. JSON has none of these limits.
const (
	maxFields    = 50_000 // in a file
	maxSiblings  = 1_000  // fields of an object that is written line by line
	maxIndent    = 2_000  // columns before a line's first sign
	siblingCost  = 8      // bytes that the parser copies for a field and each one before it in its object
	useJSON      = "a spec as JSON may have more"
	nestingLimit = "the nesting is deeper than %d levels"
)

// bounds walks over a file's tokens.
type bounds struct {
	documents, fields int
	tags              int
	brackets          []bracket // open ones
	entries           int       // dashes of lists inside of brackets, which nest there
	chain             int       // signs in this line that nest without brackets
	line              int
	prefix            int        // column of an anchor or tag in this line, which may be that of a name
	copied, left      int        // bytes that the parser copies, and how many it may
	open              []siblings // objects that are written line by line, outside in
}

// siblings are the fields of one object, whose names begin in this column. The last name has so many bytes.
type siblings struct{ column, n, name int }

// bracket is an open one, with the fields in it since the last comma.
type bracket struct{ n, name int }

// beyond returns what in a file is beyond the limits, and otherwise how many bytes more than the estimated ones
// the parser allocates, which may be left of those at most.
func beyond(tokens token.Tokens, left int) (more int, wrong *muster.FieldError) {
	b := bounds{left: left}
	for _, t := range tokens {
		if t.Position == nil {
			continue
		}
		if message, hint := b.next(t); message != "" {
			return 0, &muster.FieldError{Line: t.Position.Line, Column: t.Position.Column, Message: message, Hint: hint}
		}
	}
	return b.copied, nil
}

func (b *bounds) next(t *token.Token) (message, hint string) {
	first := t.Position.Line != b.line
	if first {
		b.line, b.chain, b.prefix = t.Position.Line, 0, 0
	}
	switch t.Type {
	case token.DocumentHeaderType:
		b.open = nil
		b.documents++
	case token.SequenceStartType, token.MappingStartType:
		b.brackets = append(b.brackets, bracket{})
	case token.SequenceEndType, token.MappingEndType:
		b.brackets = b.brackets[:max(0, len(b.brackets)-1)]
	case token.CollectEntryType:
		if last := len(b.brackets) - 1; last >= 0 {
			b.brackets[last].n = 0
		}
	case token.MappingValueType:
		b.fields++
		b.field(t.Prev)
	case token.SequenceEntryType, token.MappingKeyType, token.TagType, token.AnchorType:
		b.chain++
		switch t.Type {
		case token.TagType, token.AnchorType:
			b.prefix = cmp.Or(b.prefix, t.Position.Column)
		default:
			b.prefix = 0
		}
		if t.Type == token.TagType {
			b.tags++
		}
		if t.Type == token.SequenceEntryType && len(b.brackets) > 0 {
			b.entries++
		}
		b.within(t.Position.Column)
		if t.Type == token.MappingKeyType {
			b.sibling(t.Position.Column, 0)
		}
	default:
	}
	b.copied += b.path()
	switch {
	case b.documents > maxDocuments:
		return fmt.Sprintf("there are more than %d documents in this file", maxDocuments), "split it"
	case b.fields > maxFields:
		return fmt.Sprintf("the file has more than %d fields", maxFields), useJSON
	case b.copied > b.left:
		return "the objects of the file have too many fields, or too long names", useJSON
	case len(b.open) > 0 && b.open[len(b.open)-1].n > maxSiblings:
		return fmt.Sprintf("the object has more than %d fields", maxSiblings), useJSON
	case b.tags > maxWrong:
		return "the tag " + cut(t.Value) + " is not supported", "put texts in quotes"
	case len(b.brackets) > maxDepth, b.entries > maxDepth, len(b.brackets) == 0 && b.chain > maxDepth:
		return fmt.Sprintf(nestingLimit, maxDepth), ""
	case len(b.open) > maxDepth || first && len(b.brackets) == 0 && t.Type != token.StringType && t.Position.Column > maxIndent:
		return fmt.Sprintf(nestingLimit, maxDepth), ""
	default:
		return "", ""
	}
}

// within ends the objects that are written further right than a column.
func (b *bounds) within(column int) {
	for len(b.open) > 0 && b.open[len(b.open)-1].column > column {
		b.open = b.open[:len(b.open)-1]
	}
}

// field counts a field, whose name is this token.
func (b *bounds) field(name *token.Token) {
	length, column := 0, 0
	if name != nil && name.Position != nil {
		length, column = len(name.Value), name.Position.Column
	}
	if last := len(b.brackets) - 1; last >= 0 {
		in := &b.brackets[last]
		in.n++
		in.name = length
		b.copied += in.n * siblingCost
		return
	}
	b.chain++
	if b.prefix > 0 {
		column = min(column, b.prefix)
		b.prefix = 0
	}
	if column > 0 {
		b.sibling(column, length)
	}
}

// sibling counts a field of an object that is written line by line.
func (b *bounds) sibling(column, length int) {
	b.within(column)
	if last := len(b.open) - 1; last < 0 || b.open[last].column != column {
		b.open = append(b.open, siblings{column: column})
	}
	in := &b.open[len(b.open)-1]
	in.n++
	in.name = length
	b.copied += in.n * siblingCost
}

// path returns how long the path of a value is here, which the parser gives each of them: all names around it.
func (b *bounds) path() int {
	n := 0
	for _, in := range b.open {
		n += in.name + 1
	}
	for _, in := range b.brackets {
		n += in.name + 3
	}
	return n
}
