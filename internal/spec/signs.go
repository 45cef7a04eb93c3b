package spec

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/goccy/go-yaml/token"

	"github.com/muster-dev/muster"
)

// Limits of what the lexer and the parser of YAML are given. Each token costs about a kilobyte, and
// some texts cost them a time that grows with the square of their length.
const (
	maxTokens    = 40_000
	maxBlankWork = 20_000_000  // empty lines in a row, times the bytes before them
	maxTabWork   = 100_000_000 // tabs of long lines, times the lengths of these
	maxMergeWork = 100_000_000 // squares of the numbers of < in a row
	shortLine    = 512         // bytes
)

// crowded returns where a file has more than the lexer is given: it is found here, in one cheap pass
// over the text, because the lexer takes the whole file at once. Tokens are estimated by the signs
// between them. Those in a block scalar, such as a long script, do not count where it is certain
// that they are in one.
func crowded(data string) *muster.FieldError {
	w := signWalk{certain: true, column: -1}
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
		if wrong := w.beyond(); wrong != nil {
			return wrong
		}
	}
	return nil
}

// signWalk walks over the lines of a file.
type signWalk struct {
	line, offset int
	signs        int
	blank        int // empty lines in a row
	tabWork      int
	mergeWork    int
	certain      bool // no quotes but those of simple lines came: none is open
	flow         int  // brackets that may be open
	block        bool // in a block scalar, which lines that begin right of column belong to
	column       int  // of the last line outside of block scalars, or of what the block scalar belongs to
	open         bool // that line may be continued by the next one
}

var (
	blockHeader = regexp.MustCompile(`^ *(?:- +)*[\w./-]+: +[|>][-+0-9]* *$|^ *(?:- +)+[|>][-+0-9]* *$`)
	simpleLine  = regexp.MustCompile(`^ *(?:- +)*(?:[\w./-]+: +)?(?:\[ *)?(?:"[^"'\\]*"|'[^"']*')(?:, *(?:"[^"'\\]*"|'[^"']*'))*(?: *\])? *$`)
)

func (w *signWalk) next(line string) {
	if len(line) > shortLine {
		w.tabWork += strings.Count(line, "\t") * len(line)
	}
	for i := strings.IndexByte(line, '<'); i >= 0 && i < len(line); i++ {
		n := len(line[i:]) - len(strings.TrimLeft(line[i:], "<"))
		w.mergeWork += n * n
		i += n
	}
	if strings.TrimLeft(line, " \t") == "" {
		w.blank++
		w.signs++
		return
	}
	w.blank = 0
	indent := len(line) - len(strings.TrimLeft(line, " "))
	if w.block && indent > w.column {
		return
	}
	w.block = false
	if line[indent] == '#' {
		w.signs++
		return
	}
	column := columnOf(line)
	if w.certain && w.flow == 0 && strings.ContainsAny(line, "|>") && (!w.open || column <= w.column) && blockHeader.MatchString(line) {
		w.block = true
	}
	w.column = column
	w.open = !strings.HasSuffix(line, ":") && !w.block
	if w.certain && strings.ContainsAny(line, `"'`) && !simpleLine.MatchString(line) {
		w.certain = false
	}
	w.count(line)
}

// columnOf returns where the name of a line's field begins, or the last dash of a line without one.
func columnOf(line string) int {
	start, dash := 0, -1
	for start < len(line) && (line[start] == ' ' || strings.HasPrefix(line[start:], "- ")) {
		if line[start] == '-' {
			dash = start
		}
		start++
	}
	if dash >= 0 && !strings.Contains(line, ": ") && !strings.HasSuffix(line, ":") {
		return dash
	}
	return start
}

// count counts the signs of a line that the lexer looks at.
func (w *signWalk) count(line string) {
	w.signs++ // the end of the line
	before := byte(' ')
	for i := range len(line) {
		c := line[i]
		switch c {
		case '"', '\'', ',':
			w.signs++
		case '[', '{':
			w.signs++
			w.flow++
		case ']', '}':
			w.signs++
			w.flow = max(0, w.flow-1)
		case ':', '-', '?':
			if w.flow > 0 || i+1 == len(line) || line[i+1] == ' ' || line[i+1] == '\t' {
				w.signs++
			}
		case '&', '*', '!', '|', '>', '%', '@', '`', '#', '<':
			if strings.IndexByte(" \t,[{&*!|>%@`:-?", before) >= 0 {
				w.signs++
			}
		}
		before = c
	}
}

func (w *signWalk) beyond() *muster.FieldError {
	at := func(hint, format string, args ...any) *muster.FieldError {
		return &muster.FieldError{Line: w.line, Column: 1, Message: fmt.Sprintf(format, args...), Hint: hint}
	}
	switch {
	case w.signs > maxTokens:
		return at(useJSON, "the file has more than %d signs that YAML is made of", maxTokens)
	case w.blank*w.offset > maxBlankWork:
		return at("remove some of them", "%d empty lines follow each other", w.blank)
	case w.tabWork > maxTabWork:
		return at(`write \t in double quotes, or a spec as JSON`, "the file has too many tabs in long lines")
	case w.mergeWork > maxMergeWork:
		return at(useJSON, "the file has too many < in a row")
	default:
		return nil
	}
}

// tooMany returns where a file has more tokens than the parser is given.
func tooMany(tokens token.Tokens) *muster.FieldError {
	if len(tokens) <= maxTokens {
		return nil
	}
	e := &muster.FieldError{Line: 1, Column: 1, Message: fmt.Sprintf("the file has more than %d signs that YAML is made of", maxTokens), Hint: useJSON}
	if at := tokens[maxTokens].Position; at != nil {
		e.Line, e.Column = at.Line, at.Column
	}
	return e
}
