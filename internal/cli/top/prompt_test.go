package top

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"
	"pgregory.net/rapid"

	"github.com/muster-dev/muster/internal/cli/term"
)

// promptKeys are the keys of a prompt, besides those that type text.
var promptKeys = map[string]tea.KeyPressMsg{
	"left": {Code: tea.KeyLeft}, "right": {Code: tea.KeyRight}, "home": {Code: tea.KeyHome}, "end": {Code: tea.KeyEnd},
	"backspace": {Code: tea.KeyBackspace}, "delete": {Code: tea.KeyDelete}, "ctrl+left": {Code: tea.KeyLeft, Mod: tea.ModCtrl},
	"alt+f": {Code: 'f', Mod: tea.ModAlt}, "ctrl+w": {Code: 'w', Mod: tea.ModCtrl}, "alt+d": {Code: 'd', Mod: tea.ModAlt},
	"ctrl+u": {Code: 'u', Mod: tea.ModCtrl}, "ctrl+k": {Code: 'k', Mod: tea.ModCtrl}, "tab": {Code: tea.KeyTab}, "up": {Code: tea.KeyUp},
}

// pressPrompt presses the named keys, and types all other texts.
func pressPrompt(p *prompt, keys ...string) {
	for _, k := range keys {
		if msg, ok := promptKeys[k]; ok {
			p.press(msg)
			continue
		}
		for _, r := range k {
			p.press(tea.KeyPressMsg{Code: r, Text: string(r)})
		}
	}
}

func brackets(s string) string { return "[" + s + "]" }

func TestPromptKeys(t *testing.T) {
	for keys, want := range map[string]string{
		"":            "one two[ ]",
		"left":        "one tw[o]",
		"left left X": "one tX[w]o",
		"home right right right right right right right right": "one two[ ]",
		"home left Y":                   "Y[o]ne two",
		"home end Z":                    "one twoZ[ ]",
		"backspace":                     "one tw[ ]",
		"home backspace delete":         "[n]e two",
		"delete":                        "one two[ ]",
		"ctrl+left":                     "one [t]wo",
		"ctrl+left ctrl+left ctrl+left": "[o]ne two",
		"home alt+f":                    "one[ ]two",
		"home alt+f alt+f alt+f":        "one two[ ]",
		"ctrl+w":                        "one [ ]",
		"ctrl+w ctrl+w ctrl+w":          "[ ]",
		"home alt+d":                    "[ ]two",
		"left ctrl+u":                   "[o]",
		"ctrl+left ctrl+k":              "one [ ]",
		"tab up":                        "one two[ ]",
		"é e\u0301 left":                "one twoé[e\u0301]",
		"\u2764 \ufe0f backspace":       "one two[ ]",
		"日本 left":                       "one two日[本]",
	} {
		p := newPrompt("filter", "one two")
		pressPrompt(p, strings.Fields(keys)...)
		if got := p.draw(brackets, 80); got != "filter: "+want {
			t.Errorf("%s: %s, want filter: %s", keys, got, want)
		}
	}
}

func TestPastedTextShowsAsItself(t *testing.T) {
	p := newPrompt("filter", "a b")
	pressPrompt(p, "left")
	p.insert("x\n\x1b[31m\u202ey\xff")
	if got, want := p.value(), "a x  [31m y\ufffdb"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	p.insert(strings.Repeat("é", maxPrompt))
	if n := len(p.value()); n > maxPrompt || n < maxPrompt-1 || !strings.HasSuffix(p.value(), "b") {
		t.Errorf("a text of %d bytes, %d are allowed", n, maxPrompt)
	}
}

func TestPromptFits(t *testing.T) {
	names := slices.Sorted(maps.Keys(promptKeys))
	rapid.Check(t, func(t *rapid.T) {
		p, width := newPrompt("filter", rapid.String().Draw(t, "text")), rapid.IntRange(12, 60).Draw(t, "width")
		for range rapid.IntRange(0, 30).Draw(t, "steps") {
			if rapid.Bool().Draw(t, "paste") {
				p.insert(rapid.String().Draw(t, "pasted"))
			} else {
				pressPrompt(p, rapid.SampledFrom(names).Draw(t, "key"))
			}
			if p.cursor < 0 || p.cursor > len(p.text) || !utf8.ValidString(p.value()) {
				t.Fatalf("the cursor is at %d of %q", p.cursor, p.value())
			}
			line := p.draw(func(s string) string { return s }, width)
			if w := term.Width(line); w > width || strings.ContainsFunc(line, term.Unsafe) {
				t.Fatalf("%d columns of %d: %q", w, width, line)
			}
		}
	})
}
