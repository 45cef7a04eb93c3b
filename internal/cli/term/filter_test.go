package term

import (
	"bytes"
	"io"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// filterAll returns what a filter writes of a text that is cut after each byte.
func filterAll(tb testing.TB, m Mode, in string) string {
	tb.Helper()
	var b bytes.Buffer
	f := NewFilter(&b, m)
	for i := range len(in) {
		if n, err := f.Write([]byte{in[i]}); n != 1 || err != nil {
			tb.Fatal(n, err)
		}
	}
	return b.String()
}

func TestFilter(t *testing.T) {
	for name, c := range map[string]struct{ in, text, interactive string }{
		"text":                     {"a\tb\r\nc\b €\u0301 👩\u200d🔬❤\ufe0f می\u200cخواهم", "a\tb\r\nc\b €\u0301 👩\u200d🔬❤\ufe0f می\u200cخواهم", "a\tb\r\nc\b €\u0301 👩\u200d🔬❤\ufe0f می\u200cخواهم"},
		"title":                    {"\x1b]0;X\x07a\x1b]2;Y\x1b\\b", "ab", "ab"},
		"clipboard":                {"\x1b]52;c;c3R1ZmY=\x07a", "a", "a"},
		"link":                     {"\x1b]8;;http://x\x1b\\a\x1b]8;;\x1b\\", "a", "a"},
		"a title without an end":   {"\x1b]0;X\na", "\na", ""},
		"an ended title":           {"\x1b]0;X\x18a\x1b]0;X\x1ab", "ab", "ab"},
		"a title with a sequence":  {"\x1b]0;X\x1b[31ma", "a", "\x1b[31ma"},
		"string":                   {"\x1bPq#0\x1b\\a\x1b_Gx\x1b\\b\x1b^p\x1b\\c\x1bXs\x1b\\d", "abcd", "abcd"},
		"colors":                   {"\x1b[31mred\x1b[m\x1b[38:2::1:2:3mx", "redx", "\x1b[31mred\x1b[m\x1b[38:2::1:2:3mx"},
		"clear":                    {"\x1b[2J\x1b[H\x1bc\x1b[3;4r\x1b[?25l\x1b[2 qa", "a", "\x1b[2J\x1b[H\x1bc\x1b[3;4r\x1b[?25l\x1b[2 qa"},
		"position":                 {"\x1b[6na\x1b[?6nb\x1b[5n", "ab", "ab"},
		"identity":                 {"\x1b[ca\x1b[>cb\x1b[=0cc\x1bZd\x1b[>0qe\x05f", "abcdef", "abcdef"},
		"reports":                  {"\x1b[21ta\x1b[?1$pb\x1b[1;1;1;1;1;1*yc\x1b[?ud\x1b[?1;1;0Se\x1b[0xf\x1b['|g\x1b[#|h\x1b[?4m\x1b[$w", "abcdefgh", "abcdefgh"},
		"keyboard":                 {"\x1b[>1ua\x1b[=1ub\x1b[>4;2mc", "abc", "abc"},
		"print":                    {"\x1b[5ia\x1b[4ib", "ab", "ab"},
		"character sets":           {"\x1b(0q\x0eq\x0f\x1b(B\x1b%Gx\x1b F", "qqx", "\x1b(0q\x0eq\x0f\x1b(Bx"},
		"control characters":       {"a\x00\x01\x07\x0b\x0c\x11\x13\x7fb", "ab", "a\x07\x0b\x0cb"},
		"8-bit controls":           {"a\u009b31mb\u009d0;x\u009cc\u0085", "a�31mb�0;x�c�", "a�31mb�0;x�c�"},
		"bytes":                    {"a\x9b31m\xff\xc2\xe2\x82b\xf0\x9f\x92", "a�31m����b", "a�31m����b"},
		"direction":                {"a\u202eb\u2066c\u200fd\u200be\ufefff\U000e0041g\u2028h", "a�b�c�d�e�f�g�h", "a\u202eb\u2066c\u200fd\u200be\ufefff\U000e0041g\u2028h"},
		"no sequence":              {"\x1b€a\x1b[€b\x1b[1\nc\x1b\nd", "€a€b\nc\nd", "€a€b\nc\nd"},
		"a sequence in a sequence": {"\x1b[\x1b[31ma\x1b\x1b[2Jb", "ab", "\x1b[31ma\x1b[2Jb"},
		"a long sequence":          {"\x1b[" + strings.Repeat("1;", 40) + "ma", "a", "a"},
		"a long title":             {"\x1b]0;" + strings.Repeat("x", maxString) + "a", "xxa", ""},
	} {
		if got := filterAll(t, Text, c.in); got != c.text {
			t.Errorf("%s: text is %q, want %q", name, got, c.text)
		}
		if got := filterAll(t, Interactive, c.in); got != c.interactive {
			t.Errorf("%s: interactive is %q, want %q", name, got, c.interactive)
		}
	}
}

// TestModesAreRestored ends programs that have left modes of the terminal changed.
func TestModesAreRestored(t *testing.T) {
	for in, want := range map[string]string{
		"\x1b[31mred": "",
		"\x1b[?1049h\x1b[?25l\x1b[?25h\x1b[?1049l": "",
		"\x1b[?1;1003h\x1b[?01006;7777h":           "\x1b[?1l\x1b[?1003l\x1b[?1006l",
		"\x1b[?25l\x1b[?7l\x1b=":                   "\x1b[?7h\x1b[?25h\x1b>",
	} {
		var b bytes.Buffer
		f := NewFilter(&b, Interactive)
		if _, err := io.WriteString(f, in); err != nil {
			t.Fatal(err)
		}
		b.Reset()
		if err := f.Close(); err != nil || b.String() != want {
			t.Errorf("after %q: %q, %v, want %q", in, &b, err, want)
		}
	}
}

// TestScreenPassesItsStyles writes texts with sequences of styles, which only the program can make.
func TestScreenPassesItsStyles(t *testing.T) {
	var b bytes.Buffer
	s := Screen{Writer: &b, Terminal: true, Color: true, mark: mark()}
	text := s.Paint(Red, "failed") + ": \x1b[32mdone\x1b[0m\r\b\x1b[1;0m\x1b[2J\t\u202e\xc2"
	if n, err := s.Write([]byte(text)); n != len(text) || err != nil {
		t.Fatal(n, err)
	}
	if want := "\x1b[31mfailed\x1b[0m: done\t��"; b.String() != want {
		t.Errorf("%q, want %q", &b, want)
	}
	if s.Untrusted() == io.Writer(&b) {
		t.Error("what a task writes reaches the terminal as it is")
	}
	b.Reset()
	s.Terminal, s.mark = false, ""
	if _, err := io.WriteString(s.Untrusted(), text); err != nil || b.String() != text {
		t.Errorf("a file has %q, %v", &b, err)
	}
}

func TestLines(t *testing.T) {
	if got, want := Lines("bad\x1b[2J\r\njob 1 succeeded\u202e\n"), "bad [2J\n  job 1 succeeded"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

var (
	// drawing are the sequences that an Interactive filter may pass.
	drawing = regexp.MustCompile("\x1b(" + `\[[0-9:;]*[@A-MPSTXZ` + "`" + `abdefghlmrsu]|\[\?[0-9:;]*[hlJK]|\[[0-9:;]* q|\[[0-9:;]*!p|[78=>DEHMNOcno|}~]|[()*+./-][ -/]*[0-~]|#[3-8])`)
	keys    = strings.NewReplacer("\a", "", "\v", "", "\f", "", "\x0e", "", "\x0f", "")
)

// checkSafe fails if a text has more than a mode allows.
func checkSafe(tb testing.TB, m Mode, text string) {
	tb.Helper()
	rest := text
	if m == Interactive {
		rest = keys.Replace(drawing.ReplaceAllString(text, ""))
	}
	if !utf8.ValidString(rest) {
		tb.Fatalf("%q is not UTF-8", text)
	}
	for _, r := range rest {
		if !strings.ContainsRune("\n\t\r\b", r) && (r < ' ' || r >= 0x7f && r < 0xa0 || m == Text && Unsafe(r)) {
			tb.Fatalf("%q has %q", text, r)
		}
	}
}

// FuzzFilter checks that the output is safe, does not depend on how the input is cut, is not changed by another filter, and has all of a safe
// text.
func FuzzFilter(f *testing.F) {
	for _, seed := range []string{"plain\n", "\x1b]52;c;eA==\x07\x1b[2J\x1b[31mx\x1b[m", "\u009b2J\xff\x9b\u202e", "\x1b[?1049h\x1b(0\x1b[6n\x1bZ", "\x1bPq\n\x1b\\\xe2\x82", "\x1b[ \x1b[!p\x1b[1$p"} {
		f.Add([]byte(seed), uint(3))
	}
	f.Fuzz(func(t *testing.T, in []byte, cut uint) {
		for _, m := range []Mode{Text, Interactive} {
			whole := string(NewFilter(nil, m).Append(nil, in))
			checkSafe(t, m, whole)
			var b bytes.Buffer
			parts := NewFilter(&b, m)
			n := int(cut % uint(len(in)+1))
			for _, part := range [][]byte{in[:n], in[n : n+(len(in)-n)/2], in[n+(len(in)-n)/2:]} {
				if _, err := parts.Write(part); err != nil {
					t.Fatal(err)
				}
			}
			if b.String() != whole || filterAll(t, m, string(in)) != whole {
				t.Fatalf("%q depends on how it is cut", in)
			}
			if again := filterAll(t, m, whole); again != whole {
				t.Fatalf("%q becomes %q by another filter", whole, again)
			}
		}
	})
}

func TestFilterKeepsText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Map(func(r rune) rune {
			if Unsafe(r) && !strings.ContainsRune("\n\t\r\b", r) {
				return -1
			}
			return r
		}, rapid.String().Draw(t, "text"))
		if got := string(NewFilter(nil, Text).Append(nil, []byte(text))); got != text {
			t.Fatalf("%q became %q", text, got)
		}
	})
}
