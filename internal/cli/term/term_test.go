package term

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

func TestTableFits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		width := rapid.IntRange(1, 120).Draw(t, "width")
		columns := make([]Column, rapid.IntRange(1, 8).Draw(t, "columns"))
		for i := range columns {
			columns[i] = Column{
				Title:      rapid.StringMatching(`[A-Z]{1,12}`).Draw(t, "title"),
				AlignRight: rapid.Bool().Draw(t, "right"),
				NoTruncate: rapid.Bool().Draw(t, "whole"),
			}
		}
		table := NewTable(columns...)
		rows := rapid.IntRange(0, 5).Draw(t, "rows")
		for range rows {
			table.AddRow(rapid.SliceOfN(rapid.String(), len(columns), len(columns)).Draw(t, "row")...)
		}
		var b bytes.Buffer
		if err := table.Draw(Screen{Writer: &b, Width: width}); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
		if len(lines) != rows+1 {
			t.Fatalf("%d lines for %d rows:\n%s", len(lines), rows, &b)
		}
		for _, line := range lines {
			if Width(line) > width {
				t.Fatalf("a line takes %d columns of %d: %q", Width(line), width, line)
			}
		}
	})
}

func TestTableKeepsIDsAndTruncatesTheWidest(t *testing.T) {
	table := NewTable(Column{Title: "JOB", AlignRight: true, NoTruncate: true}, Column{Title: "NAME"}, Column{Title: "NOTE"}, Column{Title: "STATE"})
	table.AddRow("123456789", "a-name-that-is-much-too-long-for-it", "", "running")
	table.AddRow("7", "日本語の名前はとても長い", "", "done\x1b[2J")
	var b bytes.Buffer
	if err := table.Draw(Screen{Writer: &b, Width: 36}); err != nil {
		t.Fatal(err)
	}
	want := "" +
		"      JOB  NAME             STATE\n" +
		"123456789  a-name-that-is…  running\n" +
		"        7  日本語の名前は…  done [2J\n"
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", &b, want)
	}
}

func TestTableOmitsLastColumnsBeforeNames(t *testing.T) {
	table := NewTable(Column{Title: "JOB", AlignRight: true, NoTruncate: true}, Column{Title: "NAME"}, Column{Title: "STATE", NoTruncate: true}, Column{Title: "TOOK", NoTruncate: true})
	table.AddRow("17", "digits-of-monday", "succeeded", "12s")
	var b bytes.Buffer
	if err := table.Draw(Screen{Writer: &b, Width: 27}); err != nil {
		t.Fatal(err)
	}
	if want := "JOB  NAME      STATE\n 17  digits-…  succeeded\n"; b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", &b, want)
	}
}

func TestColors(t *testing.T) {
	table := NewTable(Column{Title: "STATE", Style: func(string) Style { return Red }})
	table.AddRow("failed")
	for _, color := range []bool{false, true} {
		var b bytes.Buffer
		if err := table.Draw(Screen{Writer: &b, Color: color}); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(b.String(), "\x1b["); got != color {
			t.Errorf("colour %v: %q", color, &b)
		}
	}
}

func TestWords(t *testing.T) {
	for d, want := range map[time.Duration][2]string{
		-time.Second:                   {"0ms", "now"},
		420 * time.Millisecond:         {"420ms", "now"},
		9990 * time.Millisecond:        {"9s", "9s"},
		59900 * time.Millisecond:       {"59s", "59s"},
		3*time.Minute + 5*time.Second:  {"3m05s", "3m"},
		26*time.Hour + 10*time.Minute:  {"26h10m", "26h"},
		100*time.Hour + 59*time.Minute: {"4d4h", "4d"},
	} {
		if got := [2]string{FormatDuration(d), FormatAge(d)}; got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
	for share, want := range map[float64]string{-1: "0%", 0.999: "99%", 1: "100%", 2: "100%", 0.29: "29%"} {
		if got := FormatPercent(share); got != want {
			t.Errorf("Percent(%v) = %s, want %s", share, got, want)
		}
		if got := Width(ProgressBar(10, share)); got != 10 {
			t.Errorf("Bar(10, %v) takes %d columns", share, got)
		}
	}
}

// recorder records what is written until it is taken.
type recorder struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (t *recorder) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.b.Write(p)
}

func (t *recorder) take() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	defer t.b.Reset()
	return t.b.String()
}

func TestStatusStaysBelowOutput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var shown recorder
		screen := Screen{Writer: &shown, Interactive: true, Width: 20}
		s := NewStatusLine(screen)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- s.Run(ctx, func() string { return "50% of\ta long status line" }) }()
		synctest.Wait()
		if got, want := shown.take(), "\r\x1b[K50% of a long stat…"; got != want {
			t.Errorf("drawn %q, want %q", got, want)
		}
		w := s.Above(screen)
		_, _ = w.Write([]byte("half a "))
		time.Sleep(time.Second) // virtual: ticks pass
		_, _ = w.Write([]byte("line\n"))
		if got, want := shown.take(), "\r\x1b[Khalf a line\n"; got != want {
			t.Errorf("written %q, want %q", got, want)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if got, want := shown.take(), "\r\x1b[K50% of a long stat…"; got != want {
			t.Errorf("drawn again %q, want %q", got, want)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if got, want := shown.take(), "\r\x1b[K"; got != want {
			t.Errorf("at the end %q, want %q", got, want)
		}
	})
}

// TestMessagesHaveTheirOwnLine writes output without a line end, then a message to another stream, and ends.
func TestMessagesHaveTheirOwnLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var shown recorder
		out := Screen{Writer: struct{ *recorder }{&shown}, Interactive: true, Width: 20}
		errs := Screen{Writer: &shown, Interactive: true, Width: 20}
		s := NewStatusLine(errs)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- s.Run(ctx, func() string { return "x" }) }()
		synctest.Wait()
		_, _ = s.Above(out).Write([]byte("half"))
		_, _ = s.Above(out).Write([]byte(" a line"))
		_, _ = s.Above(errs).Write([]byte("message\n"))
		_, _ = s.Above(out).Write([]byte("nonl"))
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if got, want := shown.take(), "\r\x1b[Kx\r\x1b[Khalf a line\nmessage\nnonl\n"; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	})
}

func TestStatusIsSilentWithoutTerminal(t *testing.T) {
	var b bytes.Buffer
	s := NewStatusLine(Screen{Writer: &b})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Run(ctx, func() string { return "x" }); err != nil {
		t.Fatal(err)
	}
	s.Suspend(func() {})
	if b.Len() != 0 {
		t.Errorf("wrote %q", &b)
	}
}
