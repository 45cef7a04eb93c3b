package spec

import (
	"fmt"
	"strings"

	"github.com/goccy/go-yaml/token"

	"github.com/muster-dev/muster"
)

// Limits of what the lexer and the parser of YAML are given. What they allocate for a file is at most the
// number of its bytes and of its signs times these, and some texts cost them a time that grows with the
// square of their length.
const (
	maxTokens     = 40_000
	maxCost       = 47_000_000  // bytes that reading a file allocates, as estimated
	tokenCost     = 1_000       // bytes for a token
	documentCost  = 16_000      // bytes for a document
	valueCost     = 700         // bytes for a value that an alias brings in
	aliasesOfAny  = 5_000_000   // bytes for what aliases bring into any file
	aliasesOfByte = 500         // and for each byte of it
	readCost      = 20          // bytes for one of a text as JSON
	textCost      = 76          // bytes for one of a text that the library reads
	blockCost     = 140         // bytes for one of a block scalar that the library reads
	maxBlankWork  = 20_000_000  // empty lines in a row, times the bytes before them
	maxTabWork    = 100_000_000 // tabs of long lines, times the lengths of these
	maxMergeWork  = 100_000_000 // squares of the numbers of < in a row
	shortLine     = 512         // bytes
	longNumber    = 1_000       // digits
)

// estimateCost returns what the lexer and the parser would allocate for a file, added to a cost, and where the file
// has more than they are given: it is found here, in one cheap pass over the text, because the lexer takes the
// whole file at once. Tokens are estimated by the signs between them, wherever these stand.
func estimateCost(data string, cost int) (int, *muster.FieldError) {
	w := costEstimator{base: cost}
	for len(data) > 0 {
		line, rest := data, ""
		if i := strings.IndexAny(data, "\n\r"); i >= 0 {
			line, rest = data[:i], data[i+1:]
			if data[i] == '\r' {
				rest = strings.TrimPrefix(rest, "\n")
			}
		}
		w.line++
		w.next(line)
		w.offset += len(data) - len(rest)
		data = rest
		if wrong := w.exceeded(); wrong != nil {
			return w.cost(), wrong
		}
	}
	return w.cost(), nil
}

// costEstimator walks over the lines of a file.
type costEstimator struct {
	base         int // cost of what was read before
	line, offset int
	tokens       int
	blockBytes   int // bytes since the first line that may be the header of a block scalar
	inBlock      bool
	documents    int // lines that may begin or end one
	blankLines   int // empty lines in a row
	rereadBytes  int // bytes that are read more than once: escapes in JSON, long numbers
	tabWork      int
	mergeWork    int
	brackets     int // brackets that may be open
}

func (w *costEstimator) cost() int {
	return w.base + w.tokens*tokenCost + w.documents*documentCost + w.offset*textCost + w.rereadBytes*readCost + w.blockBytes*(blockCost-textCost)
}

func (w *costEstimator) next(line string) {
	if w.inBlock {
		w.blockBytes += len(line) + 1
	}
	w.rereadBytes += jsonSize(line) - len(line)
	if len(line) > shortLine {
		w.tabWork += strings.Count(line, "\t") * len(line)
	}
	for i := strings.IndexByte(line, '<'); i >= 0 && i < len(line); i++ {
		n := len(line[i:]) - len(strings.TrimLeft(line[i:], "<"))
		w.mergeWork += n * n
		i += n
	}
	text := strings.TrimLeft(line, " \t")
	if text == "" {
		w.blankLines++
		w.tokens++
		return
	}
	w.blankLines = 0
	if strings.HasPrefix(line, "---") || strings.HasPrefix(line, "...") {
		w.documents++
	}
	if text[0] == '#' {
		w.tokens++
		return
	}
	w.inBlock = w.inBlock || mayBeBlockHeader(line)
	w.countTokens(line)
}

// countTokens counts the signs of a line that the lexer looks at.
func (w *costEstimator) countTokens(line string) {
	w.tokens++ // the end of the line
	before := byte(' ')
	digits := 0
	for i := range len(line) {
		c := line[i]
		if c >= '0' && c <= '9' || c == '_' || c == '.' {
			if digits++; digits > longNumber {
				w.rereadBytes += 2
			}
		} else {
			digits = 0
		}
		switch c {
		case '"', '\'', ',':
			w.tokens++
		case '[', '{':
			w.tokens++
			w.brackets++
		case ']', '}':
			w.tokens++
			w.brackets = max(0, w.brackets-1)
		case ':', '-', '?':
			if w.brackets > 0 || i+1 == len(line) || line[i+1] == ' ' || line[i+1] == '\t' {
				w.tokens++
			}
		case '&', '*', '!', '|', '>', '%', '@', '`', '#', '<':
			if strings.IndexByte(" \t,[{&*!|>%@`:-?", before) >= 0 {
				w.tokens++
			}
		}
		before = c
	}
}

func (w *costEstimator) exceeded() *muster.FieldError {
	at := func(hint, format string, args ...any) *muster.FieldError {
		return &muster.FieldError{Line: w.line, Column: 1, Message: fmt.Sprintf(format, args...), Hint: hint}
	}
	switch {
	case w.tokens > maxTokens:
		return at(useJSONHint, "the file has more than %d signs that YAML is made of", maxTokens)
	case w.cost() > maxCost:
		return at("write long texts as block scalars, such as run: |, or the spec as JSON", "the file is too large to be read as YAML beyond this line")
	case w.blankLines*w.offset > maxBlankWork:
		return at("remove some of them", "%d empty lines follow each other", w.blankLines)
	case w.tabWork > maxTabWork:
		return at(`write \t in double quotes, or a spec as JSON`, "the file has too many tabs in long lines")
	case w.mergeWork > maxMergeWork:
		return at(useJSONHint, "the file has too many < in a row")
	default:
		return nil
	}
}

// checkTokenCount returns where a file has more tokens than the parser is given.
func checkTokenCount(tokens token.Tokens) *muster.FieldError {
	if len(tokens) <= maxTokens {
		return nil
	}
	e := &muster.FieldError{Line: 1, Column: 1, Message: fmt.Sprintf("the file has more than %d signs that YAML is made of", maxTokens), Hint: useJSONHint}
	if at := tokens[maxTokens].Position; at != nil {
		e.Line, e.Column = at.Line, at.Column
	}
	return e
}
