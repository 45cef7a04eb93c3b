package spec

import (
	"cmp"
	"fmt"

	"github.com/goccy/go-yaml/token"

	"github.com/muster-dev/muster"
)

// Limits of a YAML file. The parser recurses for every level and stores every
// node's path; its time is quadratic in the documents of a file and in the fields of
// a block mapping. JSON has none of these limits.
const (
	maxFields    = 50_000 // in a file
	maxSiblings  = 1_000  // fields of a block mapping
	maxIndent    = 2_000  // columns before the first token of a line
	siblingCost  = 8      // bytes that the parser copies for a field and for each earlier one of its object
	useJSONHint  = "a spec as JSON may have more"
	nestingLimit = "the nesting is deeper than %d levels"
)

// limitChecker checks the tokens of a file.
type limitChecker struct {
	documents, fields int
	tags              int
	brackets          []bracket // open ones
	listEntries       int       // dashes within brackets, which nest there
	depthInLine       int       // tokens in this line that nest without brackets
	line              int
	prefix            int        // column of an anchor or tag in this line, which may precede a name
	cost, budget      int        // bytes that the parser copies, and their maximum
	openObjects       []siblings // block mappings, outermost first
}

// siblings are the fields of one block mapping: their column, their number and the length of the last name.
type siblings struct{ column, n, name int }

// bracket is an open bracket: its fields since the last comma and the length of the last name.
type bracket struct{ n, name int }

// checkLimits returns the first violation of a limit, and otherwise how many bytes the parser allocates in addition to
// the estimate, at most budget.
func checkLimits(tokens token.Tokens, budget int) (more int, wrong *muster.FieldError) {
	b := limitChecker{budget: budget}
	for _, t := range tokens {
		if t.Position == nil {
			continue
		}
		if message, hint := b.next(t); message != "" {
			return 0, &muster.FieldError{Line: t.Position.Line, Column: t.Position.Column, Message: message, Hint: hint}
		}
	}
	return b.cost, nil
}

func (b *limitChecker) next(t *token.Token) (message, hint string) {
	first := t.Position.Line != b.line
	if first {
		b.line, b.depthInLine, b.prefix = t.Position.Line, 0, 0
	}
	switch t.Type {
	case token.DocumentHeaderType:
		b.openObjects = nil
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
		b.addField(t.Prev)
	case token.SequenceEntryType, token.MappingKeyType, token.TagType, token.AnchorType:
		b.depthInLine++
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
			b.listEntries++
		}
		b.closeObjects(t.Position.Column)
		if t.Type == token.MappingKeyType {
			b.addSibling(t.Position.Column, 0)
		}
	default:
	}
	b.cost += b.pathLen()
	switch {
	case b.documents > maxDocuments:
		return fmt.Sprintf("the file has more than %d documents", maxDocuments), "split it"
	case b.fields > maxFields:
		return fmt.Sprintf("the file has more than %d fields", maxFields), useJSONHint
	case b.cost > b.budget:
		return "the objects of the file have too many fields or too long names", useJSONHint
	case len(b.openObjects) > 0 && b.openObjects[len(b.openObjects)-1].n > maxSiblings:
		return fmt.Sprintf("the object has more than %d fields", maxSiblings), useJSONHint
	case b.tags > maxWrong:
		return "the tag " + muster.Truncate(t.Value) + " is not supported", "put strings in quotes"
	case len(b.brackets) > maxDepth, b.listEntries > maxDepth, len(b.brackets) == 0 && b.depthInLine > maxDepth:
		return fmt.Sprintf(nestingLimit, maxDepth), ""
	case len(b.openObjects) > maxDepth || first && len(b.brackets) == 0 && t.Type != token.StringType && t.Position.Column > maxIndent:
		return fmt.Sprintf(nestingLimit, maxDepth), ""
	default:
		return "", ""
	}
}

// closeObjects ends block mappings to the right of a column.
func (b *limitChecker) closeObjects(column int) {
	for len(b.openObjects) > 0 && b.openObjects[len(b.openObjects)-1].column > column {
		b.openObjects = b.openObjects[:len(b.openObjects)-1]
	}
}

// addField counts the field with this name.
func (b *limitChecker) addField(name *token.Token) {
	length, column := 0, 0
	if name != nil && name.Position != nil {
		length, column = len(name.Value), name.Position.Column
	}
	if last := len(b.brackets) - 1; last >= 0 {
		in := &b.brackets[last]
		in.n++
		in.name = length
		b.cost += in.n * siblingCost
		return
	}
	b.depthInLine++
	if b.prefix > 0 {
		column = min(column, b.prefix)
		b.prefix = 0
	}
	if column > 0 {
		b.addSibling(column, length)
	}
}

// addSibling counts a field of a block mapping.
func (b *limitChecker) addSibling(column, length int) {
	b.closeObjects(column)
	if last := len(b.openObjects) - 1; last < 0 || b.openObjects[last].column != column {
		b.openObjects = append(b.openObjects, siblings{column: column})
	}
	in := &b.openObjects[len(b.openObjects)-1]
	in.n++
	in.name = length
	b.cost += in.n * siblingCost
}

// pathLen returns the length of the path that the parser stores for a value here: all names around it.
func (b *limitChecker) pathLen() int {
	n := 0
	for _, in := range b.openObjects {
		n += in.name + 1
	}
	for _, in := range b.brackets {
		n += in.name + 3
	}
	return n
}
