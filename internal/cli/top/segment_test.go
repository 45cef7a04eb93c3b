package top

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/muster-dev/muster/internal/api/wire"
	"github.com/muster-dev/muster/internal/client"
)

// fakeLog is a log from which windows are cut as the API cuts them.
type fakeLog struct{ all wire.LogWindow }

func (s *fakeLog) window(at int64, before bool, bytes int) wire.LogWindow {
	r := s.all.Records
	i, _ := slices.BinarySearchFunc(r, at, func(r wire.LogRecord, at int64) int { return int(r.Offset - at) })
	w := wire.LogWindow{Attempt: 1, Size: s.all.Size, First: at, Last: at, Records: []wire.LogRecord{}}
	from, to := i, i
	for n := 0; before && from > 0 && (n == 0 || n+len(r[from-1].Text) <= bytes); from-- {
		n += len(r[from-1].Text)
	}
	for n := 0; !before && to < len(r) && (n == 0 || n+len(r[to].Text) <= bytes); to++ {
		n += len(r[to].Text)
	}
	if w.Records = slices.Clone(r[from:to]); before && len(w.Records) > 0 {
		w.First = w.Records[0].Offset
	}
	if w.Last = s.all.Last; to < len(r) {
		w.Last = r[to].Offset
	}
	w.Done = w.Last == s.all.Last
	return w
}

// Whatever is read, an excerpt is a part of the log without gaps, and bounded.
func TestExcerptsAreParts(t *testing.T) {
	var lines []string
	for i := range 12_000 {
		lines = append(lines, fmt.Sprintf("line %05d %s\n", i, strings.Repeat("x", i%200)))
	}
	s := &fakeLog{newWindow(0, lines...)}
	var e logSegment
	check := func() {
		t.Helper()
		first := slices.IndexFunc(s.all.Records, func(r wire.LogRecord) bool { return r.Offset == e.first })
		if e.first == s.all.Last {
			first = len(s.all.Records)
		}
		for i, r := range e.records {
			if r.Offset != s.all.Records[first+i].Offset {
				t.Fatalf("record %d is at %d, want %d", i, r.Offset, s.all.Records[first+i].Offset)
			}
			if want := strings.TrimSuffix(s.all.Records[first+i].Text, "\n"); e.lines[i].text != want || e.lines[i].seq != r.Offset || e.indexOf(r.Offset) != i {
				t.Fatalf("line %d is %+v, want %q", i, e.lines[i], want)
			}
		}
		if next := first + len(e.records); len(e.lines) != len(e.records) || next < len(s.all.Records) && e.last != s.all.Records[next].Offset || next == len(s.all.Records) && e.last != s.all.Last {
			t.Fatalf("%d lines of %d records end at %d", len(e.lines), len(e.records), e.last)
		}
		if e.bytes > maxSegmentBytes || e.end != (e.last == s.all.Last) || e.done && !e.end {
			t.Fatalf("%d bytes, end %t, done %t", e.bytes, e.end, e.done)
		}
	}
	w := s.window(s.all.Last, true, windowBytes)
	e.add(&w, true)
	check()
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		if before := random.IntN(2) == 0; before {
			w = s.window(e.first, true, windowBytes)
			e.add(&w, true)
		} else {
			w = s.window(e.last, false, windowBytes)
			e.add(&w, false)
		}
		check()
	}
	for e.first > 0 {
		w = s.window(e.first, true, windowBytes)
		e.add(&w, true)
		check()
	}
	if e.lines[0].text != "line 00000 " {
		t.Errorf("the log begins with %q", e.lines[0].text)
	}
	other := newWindow(0, "of another attempt\n")
	other.Attempt = 2
	if e.add(&other, false); len(e.lines) != 1 || e.first != 0 || e.attempt != 2 {
		t.Errorf("another attempt: %+v", e.lines)
	}
}

// Parts of a line are one line, and long ones are cut.
func TestLinesOfRecords(t *testing.T) {
	w := newWindow(0, "begin", "warning\n", " and end\n", strings.Repeat("x", maxLineBytes), "y", "z\n", "unfinished")
	w.Records[1].Stream = client.Stderr
	var e logSegment
	e.add(&w, false)
	var got []string
	for _, l := range e.lines {
		got = append(got, l.text[:min(len(l.text), 12)])
	}
	if want := []string{"warning", "begin and en", "xxxxxxxxxxxx", "z", "unfinished"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	more := newWindow(w.Last, " no more\n")
	if e.add(&more, false); e.lines[len(e.lines)-1].text != "unfinished no more" || len(e.lines) != 5 {
		t.Errorf("the last line is %q of %d", e.lines[len(e.lines)-1].text, len(e.lines))
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
