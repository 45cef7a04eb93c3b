package term

import (
	"io"
	"os"
	"strconv"
	"strings"
	"unicode"

	"github.com/mattn/go-runewidth"
	"golang.org/x/term"
)

// Screen is a stream that a person reads.
type Screen struct {
	io.Writer
	Interactive bool // a terminal whose lines can be redrawn
	Width       int  // columns; 0 means no limit
	Color       bool
}

// NewScreen says what f can show. The environment has the last word: NO_COLOR
// (if not empty) and TERM=dumb turn colours off, COLUMNS sets the width.
func NewScreen(f *os.File, env func(string) string) Screen {
	s := Screen{Writer: f}
	fd := int(f.Fd())
	if term.IsTerminal(fd) && env("TERM") != "dumb" {
		s.Interactive = true
		s.Color = env("NO_COLOR") == ""
		s.Width = 80
		if w, _, err := term.GetSize(fd); err == nil && w > 0 {
			s.Width = w
		}
	}
	if n, err := strconv.Atoi(env("COLUMNS")); err == nil && n > 0 {
		s.Width = n
	}
	return s
}

// Size returns the columns and lines that the terminal has now. Where that is not
// known it is the Width, and 24 lines.
func (s Screen) Size() (width, height int) {
	if f, ok := s.Writer.(*os.File); ok {
		if w, h, err := term.GetSize(int(f.Fd())); err == nil && w > 0 && h > 0 {
			return w, h
		}
	}
	return s.Width, 24
}

// Style is how a text stands out: the parameters of an ANSI SGR sequence.
type Style string

// The styles.
const (
	Plain  Style = ""
	Bold   Style = "1"
	Dim    Style = "2"
	Red    Style = "31"
	Green  Style = "32"
	Yellow Style = "33"
	Blue   Style = "34"
)

// Paint returns text in a style, or as it is if the screen has no colours.
func (s Screen) Paint(style Style, text string) string {
	if !s.Color || style == Plain || text == "" {
		return text
	}
	return "\x1b[" + string(style) + "m" + text + "\x1b[0m"
}

// Sanitize returns s as one line that is safe to draw: control and formatting
// characters become spaces.
func Sanitize(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == '\u2028' || r == '\u2029' {
			return ' '
		}
		return r
	}, s)
}

// Width returns the columns that s takes.
func Width(s string) int { return runewidth.StringWidth(s) }

// Truncate shortens s to width columns, ending in "…" if something is missing. A
// width below 1 means no limit.
func Truncate(s string, width int) string {
	if width < 1 || Width(s) <= width {
		return s
	}
	return runewidth.Truncate(s, width, "…")
}
