// Package term draws for people: tables that fit the terminal, a status line below the output, progress bars,
// and prompts. Without a terminal it writes plain text: no colors, no cursor movement, no limit on the width.
//
// # Texts of others
//
// Tasks, workers and servers may send anything. On a terminal, Screen.Write passes only text and the sequences of Screen.Paint, so that no
// command has to remember it. Streams of a task pass a Filter of their own, which knows sequences that are cut. What is drawn in one
// line also passes Sanitize, so that it cannot fake another one. Only StatusLine, tables that are redrawn and the views of package top
// write cursor movements, to Screen.Writer. Pipes and files get all bytes unchanged.
package term

import (
	"crypto/rand"
	"encoding/binary"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/mattn/go-runewidth"
	"golang.org/x/term"
)

// Screen is an output for people.
type Screen struct {
	io.Writer        // the output itself
	Terminal    bool // Write passes text and the sequences of Paint only
	Interactive bool // a terminal whose lines can be redrawn
	Width       int  // columns; 0 means no limit
	Color       bool

	mark string // a secret of the process that Paint adds to its sequences and Write removes; "" means that Write passes none
}

// NewScreen returns the screen of f. In the environment, NO_COLOR (if not empty) and TERM=dumb turn colors off,
// and COLUMNS sets the width.
func NewScreen(f *os.File, env func(string) string) Screen {
	fd := int(f.Fd())
	s := Screen{Writer: f, Terminal: term.IsTerminal(fd)}
	if s.Terminal && env("TERM") != "dumb" {
		s.Interactive, s.mark = true, mark()
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

// mark returns a number that no server, worker or task can know, as a parameter.
var mark = sync.OnceValue(func() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return ";" + strconv.FormatUint(binary.LittleEndian.Uint64(b[:]), 10)
})

// Write writes whole texts of the program: a sequence or a character must not be cut. For others, there is Untrusted.
func (s Screen) Write(p []byte) (int, error) {
	if !s.Terminal {
		return s.Writer.Write(p)
	}
	if _, err := io.WriteString(s.Writer, s.Render(string(p))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Render returns what Write writes, for an output that is written to Writer with cursor movements.
func (s Screen) Render(text string) string {
	if !s.Terminal {
		return text
	}
	f := Filter{mode: message, mark: s.mark}
	out := f.Append(make([]byte, 0, len(text)), []byte(text))
	if len(f.pending) > 0 && f.state == inText {
		out = utf8.AppendRune(out, utf8.RuneError)
	}
	return string(out)
}

// Untrusted returns a writer for a stream of bytes that a task, worker or server has written: a Filter of Text on a terminal, else the
// output itself.
func (s Screen) Untrusted() io.Writer {
	if f := s.NewFilter(Text); f != nil {
		return f
	}
	return s.Writer
}

// NewFilter returns a filter of a stream to the terminal, nil if the screen is not one.
func (s Screen) NewFilter(m Mode) *Filter {
	if !s.Terminal {
		return nil
	}
	return NewFilter(s.Writer, m)
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

	Reverse Style = "7"
)

// Paint returns text in a style, unchanged if the screen has no colors.
func (s Screen) Paint(style Style, text string) string {
	if !s.Color || style == Plain || text == "" {
		return text
	}
	return s.Sequence(style) + text + s.Sequence("0")
}

// Sequence returns the sequence of a style for Write and Render, also without colors.
func (s Screen) Sequence(style Style) string { return "\x1b[" + string(style) + s.mark + "m" }

// Sanitize replaces control and formatting characters by spaces, so that s is safe to draw in one line.
func Sanitize(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == '\u2028' || r == '\u2029' {
			return ' '
		}
		return r
	}, s)
}

// Lines is Sanitize for a text of several lines, whose second and later lines are indented, so that none of them looks like a message of
// its own.
func Lines(s string) string {
	lines := strings.Split(strings.TrimRight(s, "\n"), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(Sanitize(lines[i]), " ")
	}
	return strings.Join(lines, "\n  ")
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
