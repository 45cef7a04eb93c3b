package spec

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/muster-dev/muster"
)

// Limits of the memory that the YAML library allocates for a file, in total: 2 kB for a character between tokens, because it
// keeps all tokens of brackets until these are closed, and 20 bytes for each byte of the file. Characters in block scalars,
// such as scripts, cost nothing else, but they are only known after a first reading of the rest.
const (
	maxPunctuation      = 22_000
	bytesPerPunctuation = 100 // bytes of the file that cost as much as one of these characters
)

// outline is a file without the lines of its block scalars. It has fewer lines, but the same tokens.
type outline struct {
	text   string
	blocks []block
}

// block is a block scalar of which lines are left out: the line of its header in the outline, and their number.
type block struct{ line, lines int }

// blockHeader matches a line that ends with the header of a block scalar, such as "- run: |", and returns the least indentation
// of the block. Names with other characters and an explicit indentation are left to the library.
func blockHeader(line string) (indent int, ok bool) {
	isWord := func(c rune, more string) bool {
		return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || strings.ContainsRune(more, c)
	}
	rest := strings.TrimLeft(line, " ")
	for {
		after, found := strings.CutPrefix(rest, "- ")
		if !found {
			break
		}
		rest = strings.TrimLeft(after, " ")
	}
	indent = len(line) - len(rest) // of the field or, without one, of what follows the dash
	if value := strings.TrimLeftFunc(rest, func(c rune) bool { return isWord(c, "./-") }); len(value) < len(rest) {
		if !strings.HasPrefix(value, ": ") {
			return 0, false
		}
		rest = strings.TrimLeft(value[1:], " ")
		indent++
	}
	if anchor, found := strings.CutPrefix(rest, "&"); found {
		value := strings.TrimLeftFunc(anchor, func(c rune) bool { return isWord(c, "-") })
		if len(value) == len(anchor) || !strings.HasPrefix(value, " ") {
			return 0, false
		}
		rest = strings.TrimLeft(value, " ")
	}
	if !strings.HasPrefix(rest, "|") && !strings.HasPrefix(rest, ">") {
		return 0, false
	}
	rest = rest[1:]
	if rest != "" && strings.ContainsRune("-+", rune(rest[0])) {
		rest = rest[1:]
	}
	comment := strings.TrimLeft(rest, " ")
	return indent, rest == "" || len(comment) < len(rest) && strings.HasPrefix(comment, "#")
}

func newOutline(data string) outline {
	if strings.ContainsAny(data, "\u0085\u2028\u2029") || strings.Count(data, "\r") != strings.Count(data, "\r\n") {
		return outline{text: data} // lines have unusual ends
	}
	var o outline
	var short strings.Builder
	short.Grow(len(data))
	for at, line := 0, 1; at < len(data); line++ {
		text, next := nextLine(data, at)
		short.WriteString(data[at:next])
		at = next
		indent, ok := blockHeader(text)
		if !ok {
			continue
		}
		at = blockEnd(data, next, max(indent, 1))
		o.blocks = append(o.blocks, block{line, strings.Count(data[next:at], "\n")})
	}
	o.text = short.String()
	return o
}

// nextLine returns the line that begins at a byte, without its end, and where the next one begins.
func nextLine(data string, at int) (line string, next int) {
	if i := strings.IndexByte(data[at:], '\n'); i >= 0 {
		return strings.TrimSuffix(data[at:at+i], "\r"), at + i + 1
	}
	return data[at:], len(data)
}

// blockEnd returns the end of a block scalar whose lines begin at a byte and are indented at least as much as the first one. It
// is at its beginning if an empty line before the first one has more spaces, which is an error.
func blockEnd(data string, begin, indent int) int {
	first, longest := true, 0
	at := begin
	for at < len(data) {
		line, next := nextLine(data, at)
		spaces := len(line) - len(strings.TrimLeft(line, " "))
		switch {
		case spaces == len(line):
			longest = max(longest, spaces)
		case spaces < indent:
			return at
		case first && spaces < longest:
			return begin
		case first:
			first, indent = false, spaces
		}
		at = next
	}
	return at
}

// matches reports whether all blocks are block scalars in the documents of the outline.
func (o *outline) matches(docs []*yaml.Node) bool {
	found := make(map[int]bool)
	var find func(nodes []*yaml.Node)
	find = func(nodes []*yaml.Node) {
		for _, n := range nodes {
			if n.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0 {
				found[n.Line] = true
			}
			find(n.Content)
		}
	}
	find(docs)
	return !slices.ContainsFunc(o.blocks, func(b block) bool { return !found[b.line] })
}

// originalLine moves a problem in the outline to its line in the file.
func (o *outline) originalLine(e *muster.FieldError) *muster.FieldError {
	before, _ := slices.BinarySearchFunc(o.blocks, e.Line, func(b block, line int) int { return cmp.Compare(b.line, line) })
	for _, b := range o.blocks[:before] {
		e.Line += b.lines
	}
	return e
}

// checkCost returns the line from which on a file, or its outline, is too large. readings is how often the library will read it.
func checkCost(text string, readings, fileSize int) *muster.FieldError {
	budget := (maxPunctuation - fileSize/bytesPerPunctuation) / readings
	count := 0
	for at, line := 0, 1; at < len(text); line++ {
		s, next := nextLine(text, at)
		at = next
		if count += punctuation(s); count > budget {
			return &muster.FieldError{
				Line: line, Column: 1, Message: fmt.Sprintf("the file is too large for YAML from this line on: it has more than %d brackets, commas, quotes, colons, dashes and comments", budget),
				Hint: "write long strings as block scalars, such as run: |, or the spec as JSON",
			}
		}
	}
	return nil
}

// directiveCost is the punctuation that a directive counts as: the library compares each with all others.
const directiveCost = 200

// punctuation counts the characters of a line that may begin or separate tokens or comments. Any character beyond ASCII may end a
// line, as may a carriage return.
func punctuation(line string) int {
	n := 0
	if strings.HasPrefix(line, "%") {
		n = directiveCost
	}
	separates := func(c byte, separators string) bool {
		return c >= 0x80 || c == '\r' || strings.IndexByte(separators, c) >= 0
	}
	before := byte(' ')
	for i := range len(line) {
		c := line[i]
		switch c {
		case ',', '[', ']', '{', '}':
			n++
		case '"', '\'', '&', '*', '!':
			if separates(before, " \t,[]{}:-\"'") {
				n++
			}
		case '#':
			if separates(before, " \t") {
				n++
			}
		case ':', '-', '?':
			if i+1 == len(line) || separates(line[i+1], " \t,[]{}") {
				n++
			}
		}
		before = c
	}
	return n
}
