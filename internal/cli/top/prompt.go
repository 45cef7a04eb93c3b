package top

import (
	"slices"
	"strings"
	"unicode"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/muster-dev/muster/internal/cli/term"
)

// maxPrompt is the most bytes of a text in a prompt.
const maxPrompt = 1000

// prompt is a line of text that is edited with the usual keys of readline.
type prompt struct {
	label  string
	text   []string // what looks like one character: a letter with its accents, an emoji with its joiners
	cursor int      // the index in text before which typed text is inserted
}

func newPrompt(label, text string) *prompt {
	p := &prompt{label: label}
	p.insert(text)
	return p
}

func (p *prompt) value() string { return strings.Join(p.text, "") }

// insert inserts a text before the cursor: characters that would not show as themselves as spaces, and only as much of it as fits.
func (p *prompt) insert(s string) {
	s = strings.Map(func(r rune) rune {
		if term.Unsafe(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "\ufffd"))
	before, after := strings.Join(p.text[:p.cursor], ""), strings.Join(p.text[p.cursor:], "")
	for _, c := range characters(s) {
		if len(before)+len(c)+len(after) > maxPrompt {
			break
		}
		before += c
	}
	p.text, p.cursor = characters(before+after), len(characters(before))
}

// characters splits a text where the cursor may be.
func characters(s string) []string {
	var all []string
	for s != "" {
		c, _ := ansi.FirstGraphemeCluster(s, ansi.GraphemeWidth)
		all, s = append(all, c), s[len(c):]
	}
	return all
}

// press handles a key.
func (p *prompt) press(k tea.KeyPressMsg) {
	switch k.String() {
	case "left", "ctrl+b":
		p.cursor = max(p.cursor-1, 0)
	case "right", "ctrl+f":
		p.cursor = min(p.cursor+1, len(p.text))
	case "home", "ctrl+a":
		p.cursor = 0
	case "end", "ctrl+e":
		p.cursor = len(p.text)
	case "alt+left", "ctrl+left", "alt+b":
		p.cursor = p.wordBegin()
	case "alt+right", "ctrl+right", "alt+f":
		p.cursor = p.wordEnd()
	case "backspace", "ctrl+h":
		p.remove(max(p.cursor-1, 0), p.cursor)
	case "delete", "ctrl+d":
		p.remove(p.cursor, min(p.cursor+1, len(p.text)))
	case "ctrl+w", "alt+backspace", "ctrl+backspace":
		p.remove(p.wordBegin(), p.cursor)
	case "alt+d", "alt+delete", "ctrl+delete":
		p.remove(p.cursor, p.wordEnd())
	case "ctrl+u":
		p.remove(0, p.cursor)
	case "ctrl+k":
		p.remove(p.cursor, len(p.text))
	default:
		p.insert(k.Text)
	}
}

// remove removes the characters from i up to j, and moves the cursor to i.
func (p *prompt) remove(i, j int) { p.text, p.cursor = slices.Delete(p.text, i, j), i }

func isSpace(c string) bool { return strings.TrimFunc(c, unicode.IsSpace) == "" }

// wordBegin returns where the word before the cursor begins.
func (p *prompt) wordBegin() int {
	i := p.cursor
	for i > 0 && isSpace(p.text[i-1]) {
		i--
	}
	for i > 0 && !isSpace(p.text[i-1]) {
		i--
	}
	return i
}

// wordEnd returns where the word after the cursor ends.
func (p *prompt) wordEnd() int {
	i := p.cursor
	for i < len(p.text) && isSpace(p.text[i]) {
		i++
	}
	for i < len(p.text) && !isSpace(p.text[i]) {
		i++
	}
	return i
}

// draw draws the prompt in width columns: the label, and the part of the text around the cursor that fits. The character at the cursor is
// passed through reverse.
func (p *prompt) draw(reverse func(string) string, width int) string {
	label := p.label + ": "
	at := " " // the cursor is behind the text
	if p.cursor < len(p.text) {
		at = p.text[p.cursor]
	}
	rest := width - term.Width(label) - term.Width(at)
	first, last := p.cursor, min(p.cursor+1, len(p.text))
	for first > 0 && term.Width(p.text[first-1]) <= rest {
		first--
		rest -= term.Width(p.text[first])
	}
	for last < len(p.text) && term.Width(p.text[last]) <= rest {
		rest -= term.Width(p.text[last])
		last++
	}
	line := label + strings.Join(p.text[first:p.cursor], "") + reverse(at)
	if p.cursor < last {
		line += strings.Join(p.text[p.cursor+1:last], "")
	}
	return line
}
