package top

import (
	"fmt"
	"strings"
	"testing"

	"github.com/muster-dev/muster/internal/client"
)

// A log of any length is kept in bounded memory, with its last lines.
func TestRingIsBounded(t *testing.T) {
	r := &ring{partial: map[string][]byte{}}
	for i := range 3 * maxRingLines {
		r.addOutput(&client.LogLine{Attempt: 1, Stream: client.Stdout, Data: fmt.Appendf(nil, "line %d\n", i)})
	}
	lines, _ := r.snapshot()
	if len(lines) != maxRingLines || lines[len(lines)-1].text != fmt.Sprintf("line %d", 3*maxRingLines-1) {
		t.Errorf("%d lines are kept, the last one is %q", len(lines), lines[len(lines)-1].text)
	}
	for range 10 {
		r.addOutput(&client.LogLine{Attempt: 1, Stream: client.Stdout, Data: []byte(strings.Repeat("x", 1<<20))})
		r.addOutput(&client.LogLine{Attempt: 1, Stream: client.Stdout, Data: []byte(strings.Repeat("0123456", 2<<10) + "\n")})
	}
	total := 0
	if lines, _ = r.snapshot(); len(lines) > maxRingLines {
		t.Errorf("%d lines are kept", len(lines))
	}
	for _, l := range lines {
		if total += len(l.text); len(l.text) > maxLineBytes+3 {
			t.Errorf("a line has %d bytes", len(l.text))
		}
	}
	if total > maxRingBytes || len(r.partial[client.Stdout]) > maxLineBytes {
		t.Errorf("%d bytes are kept, and %d of an unfinished line", total, len(r.partial[client.Stdout]))
	}
}

func TestReadable(t *testing.T) {
	for in, want := range map[string]string{
		"plain":                         "plain",
		"\x1b[31mred\x1b[0m":            "red",
		" 10%\r 50%\r100%":              "100%",
		"done\r":                        "done",
		"a\tb":                          "a    b",
		"bell\a and \x1b]0;title\a end": "bell  and  end",
		"\xff\xfe":                      "�",
		"right\u202eleft":               "right left",
	} {
		if got := visibleText([]byte(in)); got != want {
			t.Errorf("%q is shown as %q, want %q", in, got, want)
		}
	}
}

func TestTaskFilters(t *testing.T) {
	for text, want := range map[string]string{
		"failed": "[failed] []", "fail, run": "[failed running] []", "active 0-99": "[waiting queued assigned running cancelling] [{0 99}]",
		"7": "[] [{7 7}]", "": "[] []",
	} {
		f, err := parseTaskFilter(text, true)
		if got := fmt.Sprintf("%v %v", f.states, f.spans); err != nil || got != want {
			t.Errorf("%q is %s (%v), want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"x", "9-1", "failed -"} {
		if f, err := parseTaskFilter(text, true); err == nil {
			t.Errorf("%q is %v, want an error", text, f)
		}
	}
	if _, err := parseTaskFilter("7", false); err == nil {
		t.Error("a number is a filter of the tasks of all jobs")
	}
}
