package spec

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml/token"
)

// The YAML library allocates a hundred times the size of a block scalar, such as a long script, and sixty times
// that of a quoted string. Therefore these are read here, and the library reads a short quoted placeholder for
// each. If a line only looks like the header of a block scalar, because it is within quotes, brackets or another
// string, the tokens do not match: restore fails, and the file is read unchanged.

// longText is a string that was replaced by a placeholder.
type longText struct {
	line         int    // of the placeholder in the shortened file
	column       int    // of the | or > or quote
	parentColumn int    // of a block scalar: column of its field's name or its dash
	removedLines int    // removed from the file up to this one
	removedChars int    // removed characters of this line up to this one
	text         string // its value
}

// longTexts are long texts in the order of the file.
type longTexts []longText

const (
	placeholder = "muster: text " // prefix of all placeholders
	minQuoted   = 4_096           // bytes from which a quoted string is replaced
	maxReread   = 4 * MaxFile     // bytes of block scalars that are read and then not replaced
	maxReplaced = maxTokens/3 + 1 // strings: each has three tokens, so a file with more is rejected
)

// shortener replaces the long strings of a file.
type shortener struct {
	data         string
	short        strings.Builder
	copied       int // bytes of data that are in short or replaced
	line         int // in short
	removedLines int // removed lines
	reread       int // bytes
	replaced     longTexts
}

// shorten replaces the block scalars and long quoted strings of a file.
func shorten(data string) (short string, replaced longTexts) {
	if strings.Contains(data, placeholder) {
		return data, nil
	}
	s := shortener{data: data}
	for at := 0; at < len(data) && s.reread < maxReread && len(s.replaced) < maxReplaced; {
		line, next := nextLine(data, at)
		s.line++
		if len(line) > minQuoted {
			s.replaceQuoted(line, at)
		}
		at = s.replaceBlock(line, at, next)
	}
	if s.replaced == nil {
		return data, nil
	}
	s.short.WriteString(data[s.copied:])
	return s.short.String(), s.replaced
}

// replace replaces bytes of the file by a placeholder.
func (s *shortener) replace(start, end int, quote string, sc longText) {
	s.short.WriteString(s.data[s.copied:start])
	s.short.WriteString(quote + placeholder + strconv.Itoa(len(s.replaced)) + quote)
	s.copied = end
	sc.line, sc.removedLines = s.line, s.removedLines
	s.replaced = append(s.replaced, sc)
}

// replaceBlock replaces the block scalar whose header is in a line, if there is one, and returns where to continue.
func (s *shortener) replaceBlock(line string, at, next int) int {
	if next == len(s.data) || !mayBeBlockHeader(line) || strings.IndexByte(line, '\r') >= 0 {
		return next
	}
	sc, start, ok := parseBlockHeader(line)
	if !ok {
		return next
	}
	end, lines, ok := sc.readBlock(s.data, next, line[start:])
	if !ok {
		s.reread += end - next
		return next
	}
	s.removedLines += lines
	s.replace(at+start, end, `"`, sc)
	s.short.WriteByte('\n')
	return end
}

// replaceQuoted replaces the long quoted strings that begin and end in a line.
func (s *shortener) replaceQuoted(line string, at int) {
	cut, column, counted := 0, 1, 0
	for i := 0; i < len(line); i++ {
		c := line[i]
		if c != '"' && c != '\'' || i > 0 && strings.IndexByte(" \t,[{:", line[i-1]) < 0 {
			continue
		}
		text, size, ok := unquote(line[i:])
		if !ok {
			i += size - 1
			continue
		}
		column += utf8.RuneCountInString(line[counted:i])
		counted = i
		inside := utf8.RuneCountInString(line[i : i+size])
		before := cut
		cut += inside - len(placeholder) - len(strconv.Itoa(len(s.replaced))) - 2
		s.replace(at+i, at+i+size, line[i:i+1], longText{column: column - before, removedChars: cut, text: text})
		i += size - 1
	}
}

// unquote reads a quoted string and returns the number of bytes read. ok is false if the string is short or if it
// contains something that is left to the library.
func unquote(s string) (text string, size int, ok bool) {
	special := `"\` + "\t\r"
	if s[0] == '\'' {
		special = "'\t\r"
	}
	var b strings.Builder
	for at := 1; ; {
		i := strings.IndexAny(s[at:], special)
		if i < 0 {
			return "", len(s), false
		}
		b.WriteString(s[at : at+i])
		at += i + 1
		switch s[at-1] {
		case s[0]:
			return b.String(), at, at >= minQuoted && (at == len(s) || s[at] != s[0])
		case '\\':
			if at == len(s) {
				return "", at, false
			}
			i := strings.IndexByte(`nt"\/`, s[at])
			if i < 0 {
				return "", at, false
			}
			b.WriteByte("\n\t\"\\/"[i])
			at++
		default:
			return "", at, false
		}
	}
}

// nextLine returns the line that begins at a byte, without its end, and where the next one begins.
func nextLine(data string, at int) (line string, next int) {
	if i := strings.IndexByte(data[at:], '\n'); i >= 0 {
		return strings.TrimSuffix(data[at:at+i], "\r"), at + i + 1
	}
	return data[at:], len(data)
}

// mayBeBlockHeader reports whether a line may end with the header of a block scalar.
func mayBeBlockHeader(line string) bool {
	for i := 0; ; i++ {
		n := strings.IndexAny(line[i:], "|>")
		if n < 0 {
			return false
		}
		i += n
		if i > 0 && strings.IndexByte(" \t,:?[{-", line[i-1]) < 0 {
			continue
		}
		rest := strings.TrimLeft(strings.TrimLeft(line[i+1:], "-+0123456789"), " \t\r")
		if rest == "" || rest[0] == '#' {
			return true
		}
	}
}

// parseBlockHeader parses a line that ends with the header of a block scalar: white space and dashes, a name, an
// anchor, the header and a comment; all but the header are optional. start is the header's offset. ok is false for
// other lines, and for unusual names.
func parseBlockHeader(line string) (b longText, start int, ok bool) {
	rest := strings.TrimLeft(line, " ")
	for strings.HasPrefix(rest, "- ") {
		b.parentColumn = len(line) - len(rest) + 1
		rest = strings.TrimLeft(rest[2:], " ")
	}
	if n := nameLength(rest); n > 0 {
		b.parentColumn = len(line) - len(rest) + 1
		rest = strings.TrimLeft(rest[n:], " ")
	}
	if b.parentColumn == 0 {
		return longText{}, 0, false
	}
	if strings.HasPrefix(rest, "&") {
		after := strings.TrimLeftFunc(rest[1:], isAnchorRune)
		if len(after) == len(rest)-1 || !strings.HasPrefix(after, " ") {
			return longText{}, 0, false
		}
		rest = strings.TrimLeft(after, " ")
	}
	if rest == "" || rest[0] != '|' && rest[0] != '>' {
		return longText{}, 0, false
	}
	start = len(line) - len(rest)
	after := strings.TrimLeft(rest[1:], "-+123456789")
	indicators := rest[1 : len(rest)-len(after)]
	if n := len(strings.Trim(indicators, "-+")); n > 1 || len(indicators) > n+1 {
		return longText{}, 0, false
	}
	if comment := strings.TrimLeft(after, " \t"); comment != "" && (comment[0] != '#' || comment == after) {
		return longText{}, 0, false
	}
	b.column = utf8.RuneCountInString(line[:start]) + 1
	return b, start, true
}

// nameLength returns the length of the name at the start of a line with its colon, and 0 if there is none or an
// unusual one.
func nameLength(s string) int {
	var n int
	switch {
	case s == "":
		return 0
	case s[0] == '"' || s[0] == '\'':
		i := strings.IndexAny(s[1:], s[:1]+`\`)
		if i < 0 || s[1+i] != s[0] {
			return 0
		}
		n = i + 2
	case s[0] == ' ' || s[0] == '-':
		return 0
	default:
		n = len(s) - len(strings.TrimLeftFunc(s, isNameRune))
	}
	if n == 0 || !strings.HasPrefix(s[n:], ": ") {
		return 0
	}
	return n + 1
}

func isAnchorRune(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-'
}

func isNameRune(r rune) bool { return isAnchorRune(r) || r == '.' || r == '/' || r == ' ' }

// readBlock reads the lines of a block scalar from a byte of data on, and returns where they end. ok is false for
// irregular ones, which are left to the library.
func (b *longText) readBlock(data string, start int, indicators string) (end, lines int, ok bool) {
	folded := indicators[0] == '>'
	keep, strip, indent := false, false, 0
	for _, c := range indicators[1:min(3, len(indicators))] {
		switch {
		case c == '+':
			keep = true
		case c == '-':
			strip = true
		case c >= '1' && c <= '9':
			indent = b.parentColumn - 1 + int(c-'0')
		}
	}
	end = start
	blank := 0 // most spaces of a blank line before the first other one
	for end < len(data) {
		line, next := nextLine(data, end)
		if strings.IndexByte(line, '\r') >= 0 { // it also ends a line
			return end, 0, false
		}
		spaces := len(line) - len(strings.TrimLeft(line, " "))
		if spaces < len(line) {
			if line[spaces] == '\t' && spaces < max(indent, b.parentColumn) { // invalid in YAML, but the library accepts it
				return end, 0, false
			}
			if spaces < b.parentColumn {
				break
			}
			if indent == 0 {
				indent = spaces
				if blank > spaces {
					return end, 0, false
				}
			}
			if spaces < indent {
				return end, 0, false
			}
		} else if indent == 0 {
			blank = max(blank, spaces)
		}
		end = next
		lines++
	}
	if indent == 0 { // only blank lines
		indent = blank
	}
	b.text = blockContent(data[start:end], indent, folded)
	if !keep {
		trimmed := strings.TrimRight(b.text, "\n")
		if !strip && trimmed != "" && len(trimmed) < len(b.text) {
			trimmed = b.text[:len(trimmed)+1]
		}
		b.text = trimmed
	}
	return end, lines, true
}

// blockContent returns the value of a block scalar with all line ends.
func blockContent(data string, indent int, folded bool) string {
	var b strings.Builder
	b.Grow(len(data))
	breaks := 0                // pending line ends
	first, prev := true, false // prev: the previous line began with white space
	for at := 0; at < len(data); {
		line, next := nextLine(data, at)
		ended := data[next-1] == '\n'
		at = next
		line = line[min(indent, len(line)):]
		if line == "" {
			if ended {
				breaks++
			}
			continue
		}
		spaced := line[0] == ' ' || line[0] == '\t'
		if folded && !first && !spaced && !prev { // the first of them folds
			if breaks == 1 {
				b.WriteByte(' ')
			}
			breaks--
		}
		for ; breaks > 0; breaks-- {
			b.WriteByte('\n')
		}
		b.WriteString(line)
		breaks, first, prev = 0, false, spaced
		if ended {
			breaks = 1
		}
	}
	for ; breaks > 0; breaks-- {
		b.WriteByte('\n')
	}
	return b.String()
}

// originalPlace converts a place in the shortened file to one in the file.
func (ss longTexts) originalPlace(line, column int) place {
	i, _ := slices.BinarySearchFunc(ss, place{line, column}, func(s longText, at place) int {
		return cmp.Or(cmp.Compare(s.line, at.line), cmp.Compare(s.column, at.column))
	})
	at := place{line, column}
	if i == 0 {
		return at
	}
	before := ss[i-1]
	if before.line == line {
		at.column += before.removedChars
		at.line += before.removedLines
		if before.parentColumn > 0 { // its lines follow this one
			at.line = ss.originalPlace(line, 0).line
		}
		return at
	}
	at.line += before.removedLines
	return at
}

// restore sets the replaced strings and the original places in the tokens of a shortened file. It returns
// false if the tokens at these places are not strings.
func (ss longTexts) restore(tokens token.Tokens) bool {
	next, brackets := 0, 0
	for i, t := range tokens {
		switch t.Type {
		case token.SequenceStartType, token.MappingStartType:
			brackets++
		case token.SequenceEndType, token.MappingEndType:
			brackets--
		case token.DoubleQuoteType, token.SingleQuoteType:
			if next == len(ss) || t.Value != placeholder+strconv.Itoa(next) {
				break
			}
			s := &ss[next]
			if t.Position.Column != s.column || s.parentColumn > 0 && (brackets != 0 || !s.matchesTokens(tokens[:i])) {
				return false
			}
			t.Value, s.line = s.text, t.Position.Line // as the library counts, which also counts lone carriage returns
			next++
			continue
		default:
		}
		if strings.Contains(t.Value, placeholder) { // by escapes in the file, or within a longer string
			return false
		}
	}
	if next != len(ss) {
		return false
	}
	for _, t := range tokens {
		if t.Position != nil {
			at := *t.Position
			p := ss.originalPlace(at.Line, at.Column)
			at.Line, at.Column = p.line, p.column
			t.Position = &at
		}
	}
	return true
}

// matchesTokens reports whether the tokens before a block scalar match the parsed line.
func (b *longText) matchesTokens(before token.Tokens) bool {
	n := len(before)
	if n >= 2 && before[n-2].Type == token.AnchorType {
		n -= 2
	}
	switch {
	case n >= 1 && before[n-1].Type == token.SequenceEntryType:
		return before[n-1].Position.Column == b.parentColumn
	case n >= 2 && before[n-1].Type == token.MappingValueType:
		return before[n-2].Position.Column == b.parentColumn && before[n-2].Position.Line == before[n-1].Position.Line
	default:
		return false
	}
}
