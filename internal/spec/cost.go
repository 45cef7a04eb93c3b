package spec

import (
	"fmt"
	"strings"

	"github.com/goccy/go-yaml/token"

	"github.com/muster-dev/muster"
)

// Limits of the input of the YAML lexer and parser. Their allocations for a file are at most the number of its
// bytes and tokens times these costs. For some texts they take quadratic time.
const (
	maxTokens     = 40_000
	maxCost       = 47_000_000  // bytes: estimated allocations for a file
	tokenCost     = 1_000       // bytes for a token
	documentCost  = 16_000      // bytes for a document
	valueCost     = 700         // bytes for a value of an alias
	aliasesOfAny  = 5_000_000   // bytes for the aliases of any file
	aliasesOfByte = 500         // bytes for its aliases per byte of a file
	readCost      = 20          // bytes per byte of a string as JSON
	textCost      = 76          // bytes per byte of a string that the library reads
	blockCost     = 140         // bytes per byte of a block scalar that the library reads
	maxBlankWork  = 20_000_000  // consecutive empty lines times the bytes before them
	maxTabWork    = 100_000_000 // tabs of long lines times their lengths
	maxMergeWork  = 100_000_000 // sum of squares of the numbers of consecutive <
	shortLine     = 512         // bytes
	longNumber    = 1_000       // digits
)

// estimateCost adds the allocations of the lexer and the parser for a file to cost, and returns the first violation of a
// limit. It is one cheap pass over the text, because the lexer reads the whole file at once. It estimates tokens by the
// punctuation between them.
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

// costEstimator processes the lines of a file.
type costEstimator struct {
	base         int // cost of earlier text
	line, offset int
	tokens       int
	blockBytes   int // bytes after the first possible header of a block scalar
	inBlock      bool
	documents    int // lines that may begin or end a document
	blankLines   int // consecutive empty lines
	rereadBytes  int // bytes that are read again: escapes in JSON, long numbers
	tabWork      int
	mergeWork    int
	brackets     int // possibly open brackets
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

// countTokens estimates the tokens of a line.
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
		return at(useJSONHint, "the file has more than %d YAML tokens", maxTokens)
	case w.cost() > maxCost:
		return at("write long strings as block scalars, such as run: |, or the spec as JSON", "the file is too large for YAML from this line on")
	case w.blankLines*w.offset > maxBlankWork:
		return at("remove some of them", "%d consecutive empty lines are too many", w.blankLines)
	case w.tabWork > maxTabWork:
		return at(`write \t in double quotes, or a spec as JSON`, "the file has too many tabs in long lines")
	case w.mergeWork > maxMergeWork:
		return at(useJSONHint, "the file has too many consecutive <")
	default:
		return nil
	}
}

// checkTokenCount returns where a file exceeds maxTokens.
func checkTokenCount(tokens token.Tokens) *muster.FieldError {
	if len(tokens) <= maxTokens {
		return nil
	}
	e := &muster.FieldError{Line: 1, Column: 1, Message: fmt.Sprintf("the file has more than %d YAML tokens", maxTokens), Hint: useJSONHint}
	if at := tokens[maxTokens].Position; at != nil {
		e.Line, e.Column = at.Line, at.Column
	}
	return e
}
