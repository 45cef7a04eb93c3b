package spec

import (
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
	useJSON      = "a spec as JSON may have more"
	nestingLimit = "the nesting is deeper than %d levels"
)

// bounds walks over a file's tokens.
type bounds struct {
	documents, fields int
	brackets          int // open ones
	entries           int // dashes of lists inside of brackets, which nest there
	chain             int // signs in this line that nest without brackets
	line              int
	open              []siblings // objects that are written line by line, outside in
}

// siblings are the fields of one object, whose names begin in this column.
type siblings struct{ column, n int }

// beyond returns what in a file is beyond the limits.
func beyond(tokens token.Tokens) *muster.FieldError {
	var b bounds
	for _, t := range tokens {
		if t.Position == nil {
			continue
		}
		if message, hint := b.next(t); message != "" {
			return &muster.FieldError{Line: t.Position.Line, Column: t.Position.Column, Message: message, Hint: hint}
		}
	}
	return nil
}

func (b *bounds) next(t *token.Token) (message, hint string) {
	first := t.Position.Line != b.line
	if first {
		b.line, b.chain = t.Position.Line, 0
	}
	switch t.Type {
	case token.DocumentHeaderType:
		b.open = nil
		b.documents++
	case token.SequenceStartType, token.MappingStartType:
		b.brackets++
	case token.SequenceEndType, token.MappingEndType:
		b.brackets = max(0, b.brackets-1)
	case token.MappingValueType:
		b.chain++
		b.fields++
		if b.brackets == 0 && t.Prev != nil && t.Prev.Position != nil {
			b.field(t.Prev.Position.Column)
		}
	case token.SequenceEntryType, token.MappingKeyType, token.TagType, token.AnchorType:
		b.chain++
		if t.Type == token.SequenceEntryType && b.brackets > 0 {
			b.entries++
		}
		b.within(t.Position.Column)
	default:
	}
	switch {
	case b.documents > maxDocuments:
		return fmt.Sprintf("there are more than %d documents in this file", maxDocuments), "split it"
	case b.fields > maxFields:
		return fmt.Sprintf("the file has more than %d fields", maxFields), useJSON
	case len(b.open) > 0 && b.open[len(b.open)-1].n > maxSiblings:
		return fmt.Sprintf("the object has more than %d fields", maxSiblings), useJSON
	case b.brackets > maxDepth, b.entries > maxDepth, b.brackets == 0 && b.chain > maxDepth:
		return fmt.Sprintf(nestingLimit, maxDepth), ""
	case len(b.open) > maxDepth || first && b.brackets == 0 && t.Type != token.StringType && t.Position.Column > maxIndent:
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

// field counts a field whose name begins in a column.
func (b *bounds) field(column int) {
	b.within(column)
	if last := len(b.open) - 1; last >= 0 && b.open[last].column == column {
		b.open[last].n++
		return
	}
	b.open = append(b.open, siblings{column: column, n: 1})
}
