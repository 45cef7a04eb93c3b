package api

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/muster-dev/muster"
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

// TestTailReadsOnlyTheEnd checks that the last lines of a long log are found without reading all of it.
func TestTailReadsOnlyTheEnd(t *testing.T) {
	const size = 64 << 20
	s, c, at := longLog(t, size)
	for _, lines := range []int{1, 10, 1000, 50_000} {
		c.bytes = 0
		offset, err := s.tailOffset(t.Context(), at, "all", lines)
		if err != nil {
			t.Fatal(err)
		}
		if limit := int64(512<<10 + 5*110*lines); c.bytes > limit {
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
		want, _, err := s.lastLines(t.Context(), at, stream, lines)
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
