package tasklog_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/tasklog"
)

// testContext is a *testing.T or a *rapid.T.
type testContext interface {
	Fatalf(format string, args ...any)
	Context() context.Context
}

// placed is a record with its place in a log.
type placed struct {
	tasklog.Record

	start, end int64
}

// readPlaced decodes a log from an offset on.
func readPlaced(t testContext, d *tasklog.Dir, a muster.AttemptID, from int64) []placed {
	r, err := d.Open(t.Context(), a, from)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	defer r.Close()
	var list []placed
	dec := tasklog.NewDecoderAt(r, from)
	for {
		rec, err := dec.Next()
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return list
		}
		if err != nil {
			t.Fatalf("decode at %d: %v", dec.Offset(), err)
		}
		rec.Data = bytes.Clone(rec.Data)
		list = append(list, placed{rec, dec.Start(), dec.Offset()})
	}
}

func isOutput(r placed) bool {
	return r.Stream != tasklog.Usage && r.Stream != tasklog.Progress && r.Stream != tasklog.Gap
}

// stream is the model of a log: all records that were ever written.
type stream struct {
	records []placed
	size    int64
	output  int64 // bytes
	longest int64 // record of output
}

func (s *stream) add(r tasklog.Record) []byte {
	b := tasklog.AppendRecord(nil, r)
	p := placed{r, s.size, s.size + int64(len(b))}
	s.records = append(s.records, p)
	s.size = p.end
	if isOutput(p) {
		s.output += int64(len(b))
		s.longest = max(s.longest, int64(len(b)))
	}
	return b
}

// check compares what a reader gets with the stream: everything up to size from an offset on, but for one gap of output. It returns the gap.
func (s *stream) check(t testContext, got []placed, from, size int64) (gapFrom, gapTo int64) {
	at := from
	for _, g := range got {
		if g.start < at || g.end < g.start {
			t.Fatalf("a record at %d–%d follows the end of another at %d", g.start, g.end, at)
		}
		if g.Stream == tasklog.Gap {
			if gapTo > 0 {
				t.Fatalf("two gaps")
			}
			gapTo = g.end
		}
		at = g.end
	}
	want := slices.Clone(s.records)
	want = slices.DeleteFunc(want, func(r placed) bool { return r.start < from || r.end > size })
	marks := slices.DeleteFunc(slices.Clone(got), func(r placed) bool { return r.Stream == tasklog.Gap })
	gapFrom = gapTo
	if gapTo > 0 { // output that is missing is before the end of the gap, and after all output of the head
		kept := map[int64]bool{}
		for _, g := range marks {
			kept[g.start] = true
		}
		want = slices.DeleteFunc(want, func(r placed) bool {
			if !isOutput(r) || kept[r.start] || r.start >= gapTo {
				return false
			}
			gapFrom = min(gapFrom, r.start)
			return true
		})
		for _, g := range marks {
			if isOutput(g) && g.start >= gapFrom && g.start < gapTo {
				t.Fatalf("output at %d in the gap %d–%d", g.start, gapFrom, gapTo)
			}
		}
	}
	if len(want) != len(marks) {
		t.Fatalf("%d records, want %d; the gap is %d–%d", len(marks), len(want), gapFrom, gapTo)
	}
	for i, g := range marks {
		w := want[i]
		if g.start != w.start || g.end != w.end || g.Stream != w.Stream || !bytes.Equal(g.Data, w.Data) {
			t.Fatalf("record %d is %c at %d–%d, want %c at %d–%d", i, g.Stream, g.start, g.end, w.Stream, w.start, w.end)
		}
	}
	return gapFrom, gapTo
}

// TestLogKeepsItsBeginningAndEnd writes logs of any records, and copies them in chunks that are repeated and cut, to a copy that is often far
// behind. Both are reopened at any time.
func TestLogKeepsItsBeginningAndEnd(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	round := 0
	rapid.Check(t, func(rt *rapid.T) {
		round++
		path := filepath.Join(root, strconv.Itoa(round))
		a := attempt(1, 7, 1)
		worker, server := reopen(rt, nil, filepath.Join(path, "worker")), reopen(rt, nil, filepath.Join(path, "server"))
		defer func() { _, _ = worker.Close(), server.Close() }()
		limit := int64(rapid.IntRange(200, 4000).Draw(rt, "limit"))
		w := tasklog.NewWriter(worker, a, 0, limit)
		s := &stream{}
		copied := int64(0)
		var sent []tasklog.Chunk
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			switch rapid.IntRange(0, 9).Draw(rt, "step") {
			default: // write
				var batch []byte
				extra := rapid.IntRange(0, 3).Draw(rt, "sample") == 0
				for range rapid.IntRange(1, 10).Draw(rt, "records") {
					stream := rapid.SampledFrom([]tasklog.Stream{tasklog.Stdout, tasklog.Stderr, tasklog.System}).Draw(rt, "stream")
					if extra {
						stream = rapid.SampledFrom([]tasklog.Stream{tasklog.Usage, tasklog.Progress}).Draw(rt, "samples")
					}
					batch = append(batch, s.add(tasklog.Record{
						Stream: stream, At: time.UnixMilli(int64(len(s.records))).UTC(), Data: bytes.Repeat([]byte{'x'}, rapid.IntRange(0, 90).Draw(rt, "size")),
					})...)
				}
				write := w.WriteOutput
				if extra {
					write = w.Write
				}
				if err := write(rt.Context(), batch); err != nil || w.Size() != s.size {
					rt.Fatalf("write: %v, size %d, want %d", err, w.Size(), s.size)
				}
			case 0: // copy
				copied = copyChunks(rt, worker, server, a, copied, rapid.IntRange(1, 5).Draw(rt, "chunks"), &sent)
			case 1: // a repeated chunk changes nothing
				if len(sent) > 0 {
					c := rapid.SampledFrom(sent).Draw(rt, "again")
					if size, err := server.AppendChunk(rt.Context(), a, &c, 1<<30); err != nil || size != copied {
						rt.Fatalf("a repeated chunk: %d, %v, want %d", size, err, copied)
					}
				}
			case 2:
				server = reopen(rt, server, filepath.Join(path, "server"))
			case 3:
				s.check(rt, readPlaced(rt, server, a, 0), 0, copied)
			case 4: // from any record, as a client that resumes
				if len(s.records) > 0 {
					from := rapid.SampledFrom(s.records).Draw(rt, "from").start
					s.check(rt, readPlaced(rt, worker, a, from), from, s.size)
				}
			}
			got := readPlaced(rt, worker, a, 0)
			gapFrom, gapTo := s.check(rt, got, 0, s.size)
			if gapTo > 0 && s.output <= limit {
				rt.Fatalf("a gap in %d bytes of output, the limit is %d", s.output, limit)
			}
			checkParts(rt, s, got, limit, gapFrom, gapTo)
		}
		for copied < s.size {
			copied = copyChunks(rt, worker, server, a, copied, 1, &sent)
		}
		if size, err := server.Size(rt.Context(), a); err != nil || size != s.size {
			rt.Fatalf("the copy has the size %d, %v; want %d", size, err, s.size)
		}
		s.check(rt, readPlaced(rt, server, a, 0), 0, s.size)
		for _, r := range s.records {
			if at, err := server.RecordBefore(rt.Context(), a, r.start); err != nil || at > r.start {
				rt.Fatalf("before %d is %d, %v", r.start, at, err)
			}
		}
	})
}

// checkParts checks how much is kept at the beginning and at the end.
func checkParts(t testContext, s *stream, got []placed, limit, gapFrom, gapTo int64) {
	var head, tail, sum int64
	for _, g := range got {
		if !isOutput(g) {
			continue
		}
		n := g.end - g.start
		if sum += n; g.start < gapFrom {
			head += n
		}
		if gapTo > 0 && g.start >= gapTo {
			tail += n
		}
	}
	slack := 2 * s.longest
	if sum > limit+slack {
		t.Fatalf("%d bytes of output are kept, the limit is %d", sum, limit)
	}
	if gapTo > 0 && (head < limit/2-slack || tail < limit/2-limit/8-2*slack) {
		t.Fatalf("of %d bytes, the first %d and the last %d are kept; the limit is %d and the longest record %d", s.output, head, tail, limit, s.longest)
	}
}

// copyChunks copies chunks of at most 200 bytes.
func copyChunks(t testContext, from, to *tasklog.Dir, a muster.AttemptID, size int64, n int, sent *[]tasklog.Chunk) int64 {
	r, err := from.Chunks(t.Context(), a, size)
	if err != nil {
		t.Fatalf("chunks: %v", err)
	}
	defer r.Close()
	for range n {
		c, err := r.Next(200)
		if errors.Is(err, io.EOF) {
			return size
		}
		if err != nil || c.Offset != size || c.End() <= size || r.Offset() != c.End() {
			t.Fatalf("the chunk at %d is %d–%d, %v", size, c.Offset, c.End(), err)
		}
		if size, err = to.AppendChunk(t.Context(), a, &c, 1<<30); err != nil || size != c.End() {
			t.Fatalf("append the chunk %d–%d: size %d, %v", c.Offset, c.End(), size, err)
		}
		*sent = append(*sent, c)
	}
	return size
}

// reopen closes d, unless it is nil, and opens a directory: of a worker, or else, with an index, of a server.
func reopen(t testContext, d *tasklog.Dir, path string) *tasklog.Dir {
	if d != nil {
		if err := d.Close(); err != nil {
			t.Fatalf("close: %v", err)
		}
	}
	open := tasklog.OpenIndexedDir
	if filepath.Base(path) == "worker" {
		open = tasklog.OpenDir
	}
	d, err := open(path)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	return d
}

// TestFollowerThatFallsBehind reads while the log's tail moves on: it gets the mark once, and then the oldest kept record.
func TestFollowerThatFallsBehind(t *testing.T) {
	t.Parallel()
	d := openDir(t, t.TempDir())
	a := attempt(1, 0, 1)
	s := &stream{}
	w := tasklog.NewWriter(d, a, 0, 8000)
	write := func(n int) {
		for range n {
			b := s.add(tasklog.Record{Stream: tasklog.Stdout, At: time.UnixMilli(int64(len(s.records))).UTC(), Data: fmt.Appendf(nil, "%d\n", len(s.records))})
			if err := w.WriteOutput(t.Context(), b); err != nil {
				t.Fatal(err)
			}
		}
	}
	r, err := d.Open(t.Context(), a, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	dec := tasklog.NewDecoder(r)
	marks, records := 0, 0
	read := func() {
		for {
			rec, err := dec.Next()
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if rec.Stream == tasklog.Gap {
				marks++
			} else {
				records++
			}
		}
	}
	for range 200 { // it keeps up
		write(10)
		read()
	}
	if marks != 0 || records != 2000 {
		t.Errorf("a follower that keeps up got %d gaps and %d of 2000 records", marks, records)
	}
	write(2000)
	read()
	if marks != 1 || records < 2100 || records >= 2600 || dec.Offset() != s.size {
		t.Errorf("a follower that fell behind got %d gaps, %d records, and is at %d of %d", marks, records, dec.Offset(), s.size)
	}
}

// TestHostileChunks sends chunks that no worker sends.
func TestHostileChunks(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	d := reopen(t, nil, root)
	defer d.Close()
	a := attempt(1, 0, 1)
	line := tasklog.AppendRecord(nil, tasklog.Record{Stream: tasklog.Stdout, Data: []byte("line\n")})
	sample := tasklog.AppendRecord(nil, tasklog.Record{Stream: tasklog.Usage, Data: []byte("{}")})
	const limit = 5_000
	size := int64(0)
	for i := range 500 { // each line in a segment of its own
		c := tasklog.Chunk{Offset: size, Data: line, Segment: size}
		var err error
		if size, err = d.AppendChunk(t.Context(), a, &c, limit); err != nil || size != int64((i+1)*len(line)) {
			t.Fatalf("chunk %d: %d, %v", i, size, err)
		}
	}
	if names, err := os.ReadDir(filepath.Join(root, "0k", "1", "0", "0.1.tail")); err != nil || len(names) > 100 {
		t.Errorf("the copy has %d files, %v", len(names), err)
	}
	for _, c := range []tasklog.Chunk{
		{Offset: size, To: size + 100, Data: line},
		{Offset: size, To: size + 100, Data: []byte("no record")},
		{Offset: size, To: size + 100, Data: sample},
		{Offset: size, To: size - 1},
		{Offset: -1, Data: line},
		{Offset: 1<<62 - 1, Data: line},
		{Offset: size, To: 1<<63 - 1},
	} {
		if got, err := d.AppendChunk(t.Context(), a, &c, limit); muster.CodeOf(err) != muster.Invalid {
			t.Errorf("chunk %d–%d: %d, %v", c.Offset, c.To, got, err)
		}
	}
	if got, err := d.AppendChunk(t.Context(), a, &tasklog.Chunk{Offset: size + 1, To: size + 10}, limit); muster.CodeOf(err) != muster.Conflict || got != size {
		t.Errorf("a gap beyond the end: %d, %v", got, err)
	}
	big := bytes.Repeat(line, 2*limit/len(line))
	for range 3 { // without a segment of its own
		c := tasklog.Chunk{Offset: size, Data: big}
		var err error
		if size, err = d.AppendChunk(t.Context(), a, &c, limit); err != nil || size != c.End() {
			t.Fatalf("%d, %v", size, err)
		}
		size -= int64(len(big)) // it was not stored
	}
	var disk int64
	err := filepath.WalkDir(root, func(path string, e os.DirEntry, err error) error {
		if info, infoErr := e.Info(); err == nil && infoErr == nil && !e.IsDir() {
			disk += info.Size()
		}
		return err
	})
	if err != nil || disk > 3*limit {
		t.Errorf("%d bytes are stored, %v", disk, err)
	}
}

// TestSegmentsAreRemovedAndArchived removes a log with a tail in all ways.
func TestSegmentsAreRemovedAndArchived(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	d := reopen(t, nil, root)
	defer d.Close()
	a := attempt(1, 0, 1)
	for name, remove := range map[string]func() error{
		"RemoveAttempt": func() error { return d.RemoveAttempt(t.Context(), a) },
		"Retain":        func() error { return d.Retain(func(muster.AttemptID) bool { return false }) },
		"Remove":        func() error { return d.Remove(t.Context(), 1) },
		"Archive":       func() error { _, err := d.Archive(t.Context(), a); return err },
	} {
		w := tasklog.NewWriter(d, a, 0, 1000)
		for i := range 500 {
			err := w.WriteOutput(t.Context(), tasklog.AppendRecord(nil, tasklog.Record{Stream: tasklog.Stdout, Data: []byte(strconv.Itoa(i))}))
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(d.Sync(t.Context(), a), remove()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if size, err := d.Size(t.Context(), a); size != 0 || err != nil || len(readPlaced(t, d, a, 0)) > 0 {
			t.Errorf("after %s the log has %d bytes, %v", name, size, err)
		}
		if _, _, err := d.Sweep(1000); err != nil {
			t.Fatal(err)
		}
		left := 0
		err := filepath.WalkDir(root, func(_ string, e os.DirEntry, err error) error {
			if err == nil && !e.IsDir() {
				left++
			}
			return err
		})
		if err != nil || left > 0 != (name == "Archive") {
			t.Errorf("after %s the directory has %d files, %v", name, left, err)
		}
		if err := os.RemoveAll(filepath.Join(root, "0k")); err != nil {
			t.Fatal(err)
		}
	}
}

const killedWriter = "MUSTER_TEST_KILLED_WRITER" // the directory of a program that TestKilledWriter kills

// TestKilledWriter kills a program that writes a log and copies it, again and again. Whenever it is killed, the log and its copy are as they should be.
func TestKilledWriter(t *testing.T) {
	if dir := os.Getenv(killedWriter); dir != "" {
		runKilledWriter(t, dir)
		return
	}
	t.Parallel()
	if testing.Short() {
		t.Skip("starts many processes")
	}
	root := t.TempDir()
	for round := range 12 {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestKilledWriter$", "-test.timeout=1m")
		cmd.Env = append(os.Environ(), killedWriter+"="+root)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(60+round*15) * time.Millisecond)
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		s := numberedStream(200_000)
		worker, server := reopen(t, nil, filepath.Join(root, "worker")), reopen(t, nil, filepath.Join(root, "server"))
		for n := 1; ; n++ {
			a := attempt(1, 0, n)
			size, err := worker.Size(t.Context(), a)
			if err != nil {
				t.Fatal(err)
			}
			if size == 0 {
				break
			}
			s.check(t, readPlaced(t, worker, a, 0), 0, size)
			copied, err := server.Size(t.Context(), a)
			if err != nil || copied > size {
				t.Fatalf("round %d: the copy has %d of %d bytes, %v", round, copied, size, err)
			}
			s.check(t, readPlaced(t, server, a, 0), 0, copied)
			var sent []tasklog.Chunk
			for copied < size {
				copied = copyChunks(t, worker, server, a, copied, 1000, &sent)
			}
			s.check(t, readPlaced(t, server, a, 0), 0, size)
			if err := errors.Join(worker.RemoveAttempt(t.Context(), a), server.RemoveAttempt(t.Context(), a)); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(worker.Close(), server.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

// numberedStream is what runKilledWriter writes.
func numberedStream(n int) *stream {
	s := &stream{}
	for i := range n {
		s.add(numberedRecord(i))
	}
	return s
}

func numberedRecord(i int) tasklog.Record {
	r := tasklog.Record{Stream: tasklog.Stdout, At: time.UnixMilli(int64(i)).UTC(), Data: fmt.Appendf(nil, "%d\n", i)}
	if i%50 == 0 {
		r.Stream = tasklog.Usage
	}
	return r
}

func runKilledWriter(t *testing.T, root string) {
	t.Helper()
	worker, server := reopen(t, nil, filepath.Join(root, "worker")), reopen(t, nil, filepath.Join(root, "server"))
	var sent []tasklog.Chunk
	for n := 1; ; n++ {
		a := attempt(1, 0, n)
		w := tasklog.NewWriter(worker, a, 0, 4000)
		copied := int64(0)
		for i := range 3000 {
			r := numberedRecord(i)
			write := w.WriteOutput
			if r.Stream == tasklog.Usage {
				write = w.Write
			}
			if err := write(t.Context(), tasklog.AppendRecord(nil, r)); err != nil {
				t.Fatal(err)
			}
			if i%400 > 200 {
				copied = copyChunks(t, worker, server, a, copied, 10, &sent)
			}
		}
	}
}
