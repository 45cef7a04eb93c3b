package logview_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/logview"
	"github.com/muster-dev/muster/internal/tasklog"
)

// Windows and searches in both directions have the same records of a log with a gap, and its mark once.
func TestWindowsAndSearchesPassGaps(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		logs, err := tasklog.OpenIndexedDir(t.TempDir())
		if err != nil {
			rt.Fatal(err)
		}
		defer func() { _ = logs.Close() }()
		w := tasklog.NewWriter(logs, attempt, 0, int64(rapid.IntRange(1000, 1_000_000).Draw(rt, "limit")))
		for i := range rapid.IntRange(0, 300).Draw(rt, "records") {
			data := bytes.Repeat([]byte("x"), rapid.OneOf(rapid.IntRange(0, 100), rapid.IntRange(0, 20_000)).Draw(rt, "size"))
			r := tasklog.Record{Stream: tasklog.Stdout, At: time.UnixMilli(int64(i)), Data: append(data, '\n')}
			write := w.WriteOutput
			if rapid.IntRange(0, 5).Draw(rt, "sample") == 0 {
				r.Stream, write = tasklog.Usage, w.Write
			}
			if err := write(t.Context(), tasklog.AppendRecord(nil, r)); err != nil {
				rt.Fatal(err)
			}
		}
		output := func(r tasklog.Record) bool { return r.Stream != tasklog.Usage }
		var want []string
		err = logview.Walk(t.Context(), logs, attempt, 0, func(r logview.Record, _ int64) error {
			if output(r.Record) {
				want = append(want, describe(r))
			}
			return nil
		})
		if err != nil {
			rt.Fatal(err)
		}
		size := rapid.IntRange(1, 100_000).Draw(rt, "window")
		for _, backward := range []bool{false, true} {
			var windows, found []string
			q := logview.Query{Attempt: attempt, Backward: backward, Filter: output}
			if backward {
				q.Offset = logview.End
			}
			searchQuery := q
			for range 2000 {
				win := window(rt, logs, q, size)
				var part []string
				for _, r := range win.Records {
					part = append(part, describe(r))
				}
				if q.Offset = win.Last; backward {
					slices.Reverse(part)
					q.Offset = win.First
				}
				windows = append(windows, part...)
				if backward && win.First == 0 || !backward && win.AtEnd {
					break
				}
			}
			for range 2000 {
				res, err := logview.Search(t.Context(), logs, searchQuery, logview.Text("", false), logview.Limits{Matches: 3, Bytes: 1 << 20, Time: time.Minute})
				if err != nil {
					rt.Fatal(err)
				}
				for _, m := range res.Matches {
					found = append(found, describe(m.Record))
				}
				if searchQuery.Offset = res.ScannedTo; res.Done {
					break
				}
			}
			if backward {
				slices.Reverse(windows)
				slices.Reverse(found)
			}
			if !slices.Equal(windows, want) {
				rt.Fatalf("backward %t: windows have %v, want %v", backward, windows, want)
			}
			if !slices.Equal(found, want) {
				rt.Fatalf("backward %t: searches found %v, want %v", backward, found, want)
			}
		}
	})
}

func describe(r logview.Record) string { return fmt.Sprintf("%d %c", r.Offset, r.Stream) }

// Since agrees with a reader of the whole log.
func TestSince(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		records := drawLog(rt)
		for i := range records {
			records[i].At = time.UnixMilli(int64(i / 3)).UTC()
		}
		logs, offsets := write(t, records, rapid.Bool().Draw(rt, "indexed"))
		from := rapid.SampledFrom(offsets).Draw(rt, "from")
		since := time.UnixMilli(rapid.Int64Range(0, int64(len(records)/3+1)).Draw(rt, "since"))
		filter := rapid.SampledFrom([]func(tasklog.Record) bool{matchAny, stdout}).Draw(rt, "filter")
		want := offsets[len(offsets)-1]
		for i, r := range records {
			if offsets[i] >= from && filter(r) && !r.At.Before(since) {
				want = offsets[i]
				break
			}
		}
		if got, err := logview.Since(t.Context(), logs, attempt, from, since, filter); got != want || err != nil {
			rt.Fatalf("since %d from %d: %d, %v; want %d", since.UnixMilli(), from, got, err, want)
		}
	})
}

// Since reads a small part of a long log.
func TestSinceReadsLittle(t *testing.T) {
	var records []tasklog.Record
	for i := range 300_000 {
		records = append(records, tasklog.Record{Stream: tasklog.Stdout, At: time.UnixMilli(int64(i)), Data: fmt.Appendf(nil, "%0199d\n", i)})
	}
	logs, offsets := write(t, records, true)
	c := &countingLogs{Store: logs}
	for _, i := range []int{0, 1, 100_000, 299_999} {
		c.read = 0
		got, err := logview.Since(t.Context(), c, attempt, 0, time.UnixMilli(int64(i)), matchAny)
		if err != nil || got != offsets[i] {
			t.Errorf("record %d is at %d, %v; want %d", i, got, err, offsets[i])
		}
		if c.read > 2<<20 {
			t.Errorf("finding record %d of %d bytes read %d bytes", i, offsets[len(offsets)-1], c.read)
		}
	}
}

// countingLogs counts the bytes that are read of logs.
type countingLogs struct {
	tasklog.Store

	read int
}

type countingReader struct {
	io.ReadCloser
	logs *countingLogs
}

func (r countingReader) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	r.logs.read += n
	return n, err
}

func (c *countingLogs) Open(ctx context.Context, a muster.AttemptID, offset int64) (io.ReadCloser, error) {
	rc, err := c.Store.Open(ctx, a, offset)
	return countingReader{rc, c}, err
}
