// Package term draws for people: tables that fit the terminal, a status line below the output, progress bars,
// and prompts. Without a terminal it writes plain text: no colors, no cursor movement, no limit on the width.
//
// Texts from tasks and other users pass through Sanitize, so that they cannot move the cursor or fake a line.
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

// Screen is an output for people.
type Screen struct {
	io.Writer
	Interactive bool // a terminal whose lines can be redrawn
	Width       int  // columns; 0 means no limit
	Color       bool
}

// NewScreen returns the screen of f. In the environment, NO_COLOR (if not empty) and TERM=dumb turn colors off,
// and COLUMNS sets the width.
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

// Size returns the current columns and lines of the terminal, by default Width and 24 lines.
func (s Screen) Size() (width, height int) {
	if f, ok := s.Writer.(*os.File); ok {
		if w, h, err := term.GetSize(int(f.Fd())); err == nil && w > 0 && h > 0 {
			return w, h
		}
	}
	return s.Width, 24
}

// Style is the parameters of an ANSI SGR sequence.
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

// Paint returns text in a style, unchanged if the screen has no colors.
func (s Screen) Paint(style Style, text string) string {
	if !s.Color || style == Plain || text == "" {
		return text
	}
	return "\x1b[" + string(style) + "m" + text + "\x1b[0m"
}

// Sanitize replaces control and formatting characters by spaces, so that s is safe to draw in one line.
func Sanitize(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == '\u2028' || r == '\u2029' {
			return ' '
		}
		return r
	}, s)
}

// Width returns the width of s in columns.
func Width(s string) int { return runewidth.StringWidth(s) }

// Truncate shortens s to width columns, with "…" at the end. A width below 1 means no limit.
func Truncate(s string, width int) string {
	if width < 1 || Width(s) <= width {
		return s
	}
	return runewidth.Truncate(s, width, "…")
}
