package spec

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/muster-dev/muster"
)

// Format renders an error of Parse for a terminal: every problem with its source line
// and a caret below its column. For other errors it returns the message. The result ends
// with a line break.
func Format(err error, source string) string {
	e, ok := errors.AsType[*muster.Error](err)
	if !ok || len(e.Fields) == 0 {
		return err.Error() + "\n"
	}
	lines := strings.Split(strings.TrimPrefix(source, "\uFEFF"), "\n")
	var b strings.Builder
	name, _, _ := strings.Cut(e.Message, ": ")
	for i, f := range e.Fields {
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "%s", name)
		if f.Line > 0 {
			fmt.Fprintf(&b, ":%d:%d", f.Line, f.Column)
		}
		plain := f
		plain.Line, plain.Column = 0, 0
		fmt.Fprintf(&b, ": %s\n", plain)
		if f.Line >= 1 && f.Line <= len(lines) {
			excerpt(&b, f, strings.TrimSuffix(lines[f.Line-1], "\r"))
		}
	}
	if len(e.Fields) >= maxWrong {
		fmt.Fprintf(&b, "\nOnly the first %d problems are shown.\n", maxWrong)
	}
	return b.String()
}

// excerpt writes a line and its caret. It shortens long lines, and keeps tabs before
// the caret so that it is aligned.
func excerpt(b *strings.Builder, f muster.FieldError, line string) {
	const before, width = 60, 100
	runes := []rune(line)
	column := max(0, min(f.Column-1, len(runes)))
	start := 0
	if len(runes) > width {
		start = max(0, column-before)
	}
	end := min(len(runes), start+width)
	lead, tail := "", ""
	if start > 0 {
		lead = "…"
	}
	if end < len(runes) {
		tail = "…"
	}
	margin := fmt.Sprintf("%5d | ", f.Line)
	fmt.Fprintf(b, "%s%s%s%s\n", margin, lead, string(runes[start:end]), tail)
	b.WriteString(strings.Repeat(" ", len(margin)-2) + "| " + strings.Repeat(" ", utf8.RuneCountInString(lead)))
	for _, r := range runes[start:column] {
		if r != '\t' {
			r = ' '
		}
		b.WriteRune(r)
	}
	b.WriteString("^\n")
}
