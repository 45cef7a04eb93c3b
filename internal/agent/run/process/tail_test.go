package process

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestFailureIsDescribedByTheLastLines checks that the last line of standard error, which mostly is the error, is in the first line of the
// message, and that the lines are plain and bounded.
func TestFailureIsDescribedByTheLastLines(t *testing.T) {
	long := strings.Repeat("é", 5000)
	for _, c := range []struct{ name, stderr, want string }{
		{"nothing", "", "exit code 1"},
		{"blank lines", "\n \r\n\t\n", "exit code 1"},
		{"one line", "no such file\n", "exit code 1: no such file"},
		{"without its end", "no such file", "exit code 1: no such file"},
		{"a traceback", "Traceback (most recent call last):\n  File \"a.py\", line 1\nValueError: bad\n\n",
			"exit code 1: ValueError: bad\nTraceback (most recent call last):\n  File \"a.py\", line 1\nValueError: bad"},
		{"colors and titles", "\x1b]0;title\x07\x1b[1;31merror\x1b[0m: \x1b]8;;http://x\x1b\\disk\x1b]8;;\x1b\\\n", "exit code 1: error: disk"},
		{"a progress bar", "loading 10%\rloading 90%\r\nfailed\r\n", "exit code 1: failed\nloading 90%\nfailed"},
		{"control characters", "a\x00b\u202ec\u2028d\u009b31m\te\n", "exit code 1: abcd31m e"},
		{"invalid UTF-8", "caf\xe9\n", "exit code 1: caf\uFFFD"},
		{"a long line", long, "exit code 1: " + long[:1020] + "…"},
	} {
		tails := &tails{}
		tails.stderr.add([]byte(c.stderr))
		tails.stderr.trim()
		if c.name == "a long line" {
			tails.stderr.text = []byte(long)
		}
		if got := tails.describe("exit code 1"); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	var many tails
	for range 1000 {
		many.stderr.add([]byte(strings.Repeat("x", 200) + "\n"))
	}
	got := many.describe("exit code 1")
	if lines := strings.Split(got, "\n"); len(lines) != 1+5 || len(got) > len("exit code 1: ")+200+1+maxMessageTail {
		t.Errorf("%d lines, %d bytes", len(lines), len(got))
	}
}

// TestTailIsWholeLines checks that the end of a long output has at most 1 KiB, begins with a line if it can, and is valid text.
func TestTailIsWholeLines(t *testing.T) {
	for _, c := range []struct {
		name, write string
		n           int
		begins      string
		cut         bool
	}{
		{"nothing", "", 1, "", false},
		{"short", "abc\n", 3, "abc\nabc", false},
		{"lines", "0123456789\n", 1000, "0123456789\n", true},
		{"one line", "é", 3000, "éé", true},
		{"binary", "\xff", 5000, "", true},
	} {
		var all tail
		for range c.n {
			all.add([]byte(c.write))
		}
		all.trim()
		if len(all.text) > maxTail || len(all.text) == 0 && c.write != "" || all.cut != c.cut || !strings.HasPrefix(string(all.text), c.begins) || c.name != "binary" && !utf8.Valid(all.text) {
			t.Errorf("%s: %d bytes, cut %t: %.20q", c.name, len(all.text), all.cut, all.text)
		}
	}
}

// TestDefaultResult checks the result of a program that wrote none.
func TestDefaultResult(t *testing.T) {
	var silent, loud tails
	if got := silent.result(0); got != nil {
		t.Errorf("without output the result is %s", got)
	}
	loud.stdout.add([]byte("<a & b>\x1b[31m\xff\n"))
	if got, want := string(loud.result(3)), `{"exit_code":3,"stdout":"<a & b>\u001b[31m`+"\ufffd"+`\n","stderr":""}`; got != want && got != strings.ReplaceAll(want, "\ufffd", `\ufffd`) {
		t.Errorf("%s, want %s", got, want)
	}
	for range 1000 {
		loud.stderr.add([]byte("0123456789\n"))
	}
	loud.stderr.trim()
	if got := loud.result(3); !json.Valid(got) || !strings.HasSuffix(string(got), `,"truncated":true}`) || len(got) > 3*maxTail {
		t.Errorf("%d bytes: %.100s", len(got), got)
	}
}
