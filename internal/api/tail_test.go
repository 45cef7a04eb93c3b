package api

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/logview"
	"github.com/muster-dev/muster/internal/tasklog"
)

// readCounter counts the bytes that are read of logs.
type readCounter struct {
	tasklog.Store

	bytes int64
}

type countedReader struct {
	io.ReadCloser
	c *readCounter
}

func (r countedReader) Read(b []byte) (int, error) {
	n, err := r.ReadCloser.Read(b)
	r.c.bytes += int64(n)
	return n, err
}

func (c *readCounter) Open(ctx context.Context, a muster.AttemptID, offset int64) (io.ReadCloser, error) {
	rc, err := c.Store.Open(ctx, a, offset)
	return countedReader{rc, c}, err
}

// longLog returns a server with a log of about size bytes, in lines of 100.
func longLog(tb testing.TB, size int) (*server, *readCounter, logPosition) {
	tb.Helper()
	logs, err := tasklog.OpenIndexedDir(tb.TempDir())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = logs.Close() })
	at := logPosition{task: muster.TaskID{Job: 1}, attempt: 1}
	var block []byte
	for i, off := 0, int64(0); off < int64(size); {
		block = block[:0]
		for ; len(block) < 1<<20; i++ {
			block = tasklog.AppendRecord(block, tasklog.Record{Stream: tasklog.Stdout, At: time.UnixMilli(1), Data: fmt.Appendf(nil, "%099d\n", i)})
		}
		if off, err = logs.Append(tb.Context(), at.id(), off, block); err != nil {
			tb.Fatal(err)
		}
	}
	c := &readCounter{Store: logs}
	return &server{Config: Config{Logs: c}}, c, at
}

func (s *server) tailOffset(ctx context.Context, at logPosition, stream string, lines int) (int64, error) {
	return logview.Tail(ctx, s.Logs, at.id(), at.offset, lines, inStreamFilter(stream))
}

// lastLines is tailOffset by reading everything.
func (s *server) lastLines(ctx context.Context, at logPosition, stream string, lines int) (int64, error) {
	starts, before, open := []int64{}, at.offset, false
	err := s.records(ctx, at, func(r tasklog.Record, after int64) error {
		if inStream(stream, r) && len(r.Data) > 0 {
			if !open {
				starts = append(starts, before)
			}
			open = r.Data[len(r.Data)-1] != '\n'
		}
		before = after
		return nil
	})
	if len(starts) <= lines {
		return at.offset, err
	}
	return starts[len(starts)-lines], err
}

// TestTailReadsOnlyTheEnd checks that the last lines of a long log are found without reading all of it.
func TestTailReadsOnlyTheEnd(t *testing.T) {
	size := 1 << 30
	if testing.Short() {
		size = 64 << 20
	}
	s, c, at := longLog(t, size)
	for _, lines := range []int{1, 10, 1000, 50_000} {
		c.bytes = 0
		offset, err := s.tailOffset(t.Context(), at, "all", lines)
		if err != nil {
			t.Fatal(err)
		}
		limit := int64(192 << 10)
		if lines > 500 {
			limit = int64(512<<10 + 5*110*lines)
		}
		if c.bytes > limit {
			t.Errorf("the last %d lines of %d bytes of log took %d bytes to find, more than %d", lines, size, c.bytes, limit)
		}
		n := 0
		at := at
		at.offset = offset
		if err := s.records(t.Context(), at, func(tasklog.Record, int64) error { n++; return nil }); err != nil || n != lines {
			t.Errorf("tail %d begins %d lines before the end (%v)", lines, n, err)
		}
	}
}

// TestTailMatchesTheWholeLog compares the result with that of reading everything, in logs with
// unfinished lines, other streams and long records, and with a damaged index.
func TestTailMatchesTheWholeLog(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		root := t.TempDir()
		logs, err := tasklog.OpenIndexedDir(root)
		if err != nil {
			rt.Fatal(err)
		}
		defer func() { _ = logs.Close() }()
		at := logPosition{task: muster.TaskID{Job: 1}, attempt: 1}
		var log []byte
		starts := []int64{0}
		for range rapid.IntRange(1, 40).Draw(rt, "records") {
			data := make([]byte, rapid.OneOf(rapid.IntRange(0, 50), rapid.IntRange(0, 100<<10)).Draw(rt, "size"))
			if len(data) > 0 && rapid.Bool().Draw(rt, "ends") {
				data[len(data)-1] = '\n'
			}
			stream := rapid.SampledFrom([]tasklog.Stream{tasklog.Stdout, tasklog.Stdout, tasklog.Stderr, tasklog.Usage}).Draw(rt, "stream")
			log = tasklog.AppendRecord(log, tasklog.Record{Stream: stream, At: time.UnixMilli(1), Data: data})
			starts = append(starts, int64(len(log)))
		}
		if _, err := logs.Append(t.Context(), at.id(), 0, log); err != nil {
			rt.Fatal(err)
		}
		if rapid.Bool().Draw(rt, "damaged index") {
			damaged := []byte{0, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0, 0, 3, 0, 1} // two offsets where no record begins
			if err := os.WriteFile(filepath.Join(root, "0k", "1", "0", "0.1.log.idx"), damaged, 0o600); err != nil {
				rt.Fatal(err)
			}
		}
		at.offset = rapid.SampledFrom(starts).Draw(rt, "from")
		s := &server{Config: Config{Logs: logs}}
		stream := rapid.SampledFrom([]string{"all", "stdout", "stderr"}).Draw(rt, "of")
		lines := rapid.IntRange(1, 12).Draw(rt, "lines")
		got, err := s.tailOffset(t.Context(), at, stream, lines)
		if err != nil {
			rt.Fatal(err)
		}
		want, err := s.lastLines(t.Context(), at, stream, lines)
		if err != nil || got != want {
			rt.Fatalf("the last %d lines of %s begin at %d, want %d (%v)", lines, stream, got, want, err)
		}
	})
}

// BenchmarkTail finds the last ten lines of 256 MiB.
func BenchmarkTail(b *testing.B) {
	s, c, at := longLog(b, 256<<20)
	var took []int64
	for b.Loop() {
		c.bytes = 0
		if _, err := s.tailOffset(b.Context(), at, "all", 10); err != nil {
			b.Fatal(err)
		}
		took = append(took, c.bytes)
	}
	b.ReportMetric(float64(slices.Max(took)), "bytes-read")
}

// gapLog returns a server with a log of 20,000 numbered lines whose middle was dropped.
func gapLog(t *testing.T) (*server, logPosition) {
	t.Helper()
	logs, err := tasklog.OpenIndexedDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = logs.Close() })
	at := logPosition{task: muster.TaskID{Job: 1}, attempt: 1}
	w := tasklog.NewWriter(logs, at.id(), 0, 100_000)
	for i := range 20_000 {
		r := tasklog.Record{Stream: tasklog.Stdout, At: time.UnixMilli(int64(i)), Data: fmt.Appendf(nil, "%d\n", i)}
		if err := w.WriteOutput(t.Context(), tasklog.AppendRecord(nil, r)); err != nil {
			t.Fatal(err)
		}
	}
	return &server{Config: Config{Logs: logs}}, at
}

// TestGapIsMarked reads a log without its middle: every reader gets its beginning, a message, and its end.
func TestGapIsMarked(t *testing.T) {
	s, at := gapLog(t)
	text := func(pos logPosition, stream string) (lines []string) {
		t.Helper()
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if err := s.writeLog(w, r, pos, func(r tasklog.Record) bool { return inStream(stream, r) }); err != nil {
				t.Error(err)
			}
		}))
		defer srv.Close()
		resp, err := srv.Client().Get(srv.URL)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Split(strings.TrimSuffix(string(body), "\n"), "\n")
	}
	check := func(name string, lines []string, first string) {
		t.Helper()
		marks := 0
		for _, l := range lines {
			if strings.Contains(l, "of output is left out here: a log keeps its beginning and its end") {
				marks++
			}
		}
		if marks != 1 || lines[0] != first || lines[len(lines)-1] != "19999" {
			t.Errorf("%s: %d messages, from %q to %q", name, marks, lines[0], lines[len(lines)-1])
		}
	}
	all := text(at, "all")
	check("the text", all, "0")
	check("standard output", text(at, "stdout"), "0")
	mark := slices.IndexFunc(all, func(l string) bool { return strings.Contains(l, "left out") })
	for _, lines := range []int{1, 100, len(all) - mark, len(all) - mark + 10, len(all)} {
		pos := at
		var err error
		if pos.offset, err = s.tailOffset(t.Context(), at, "all", lines); err != nil {
			t.Fatal(err)
		}
		got := text(pos, "all")
		if !slices.Equal(got, all[len(all)-lines:]) {
			t.Errorf("the last %d lines are %d, from %q", lines, len(got), got[0])
		}
	}
	// A client that fell behind resumes at the place where it was, in what was dropped since.
	pos := at
	pos.offset = 10 * 15_000
	if err := s.checkLogPosition(t.Context(), pos); err != nil {
		t.Error(err)
	}
	if got := text(pos, "all"); !slices.Equal(got[1:], all[mark+1:]) || !strings.Contains(got[0], "left out") {
		t.Errorf("from the gap on: %q, %q …", got[0], got[1])
	}
}
