package tasklog_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/muster-dev/muster/internal/tasklog"
)

const indexInterval = 64 << 10

// makeLog returns a log, and the offsets of its records.
func makeLog(sizes []int) (log []byte, starts map[int64]bool) {
	starts = map[int64]bool{}
	for i, n := range sizes {
		starts[int64(len(log))] = true
		// Data that looks like heads of records must not confuse the index.
		data := bytes.Repeat([]byte{byte(tasklog.Stdout), 0, 0, 0, 0, 0, 0, 0, 0, 1, 'x'}, n/11+1)[:n]
		log = tasklog.AppendRecord(log, tasklog.Record{Stream: tasklog.Stdout, At: time.UnixMilli(int64(i)), Data: data})
	}
	return log, starts
}

// TestRecordBefore asks for records in logs that were appended in pieces, over closed and
// reopened directories, and without their index.
func TestRecordBefore(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		root := t.TempDir()
		d, err := tasklog.OpenIndexedDir(root)
		if err != nil {
			rt.Fatal(err)
		}
		defer func() { _ = d.Close() }()
		sizes := rapid.SliceOfN(rapid.OneOf(rapid.IntRange(0, 200), rapid.IntRange(0, 300<<10)), 1, 30).Draw(rt, "sizes")
		longest := int64(0)
		for _, n := range sizes {
			longest = max(longest, int64(n)+10)
		}
		log, starts := makeLog(sizes)
		a := attempt(1, 0, 1)
		for at := int64(0); at < int64(len(log)); {
			n := min(int64(rapid.OneOf(rapid.IntRange(1, 30), rapid.IntRange(1, 200<<10)).Draw(rt, "piece")), int64(len(log))-at)
			if at, err = d.Append(t.Context(), a, at, log[at:at+n]); err != nil {
				rt.Fatal(err)
			}
			switch rapid.IntRange(0, 20).Draw(rt, "fault") {
			case 0:
				if err := d.Close(); err != nil {
					rt.Fatal(err)
				}
			case 1:
				if err := os.Remove(filepath.Join(root, "0k", "1", "0", "0.1.log.idx")); err != nil && !errors.Is(err, os.ErrNotExist) {
					rt.Fatal(err)
				}
				if err := d.Close(); err != nil { // else it is known that all was in the index
					rt.Fatal(err)
				}
			case 2:
				offset := rapid.Int64Range(0, at).Draw(rt, "offset")
				start, err := d.RecordBefore(t.Context(), a, offset)
				switch {
				case err != nil:
					rt.Fatal(err)
				case start > offset || start != 0 && !starts[start]:
					rt.Fatalf("before %d is %d, which is not the start of a record", offset, start)
				case offset-start > 3*indexInterval+longest:
					rt.Fatalf("before %d is %d, too far away for records of at most %d bytes", offset, start, longest)
				}
			}
		}
	})
}

// TestIndexIsRemovedWithItsLog removes a log and creates another one of the same attempt.
func TestIndexIsRemovedWithItsLog(t *testing.T) {
	root := t.TempDir()
	d, err := tasklog.OpenIndexedDir(root)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.Close() }()
	a := attempt(1, 0, 1)
	put := func(size int) (starts map[int64]bool) {
		t.Helper()
		sizes := make([]int, 1<<20/size)
		for i := range sizes {
			sizes[i] = size
		}
		log, starts := makeLog(sizes)
		mustAppend(t, d, a, 0, string(log))
		return starts
	}
	put(1000)
	if err := d.RemoveAttempt(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(root); err != nil || len(left) > 0 {
		t.Errorf("%v of the log remains (%v)", left, err)
	}
	put(1000)
	if err := errors.Join(os.Remove(filepath.Join(root, "0k", "1", "0", "0.1.log")), d.Close()); err != nil { // not by the Dir
		t.Fatal(err)
	}
	starts := put(777)
	for offset := int64(0); offset < 1<<20; offset += 50_000 {
		if start, err := d.RecordBefore(t.Context(), a, offset); err != nil || !starts[start] || offset-start > 2*indexInterval {
			t.Errorf("before %d is %d (%v)", offset, start, err)
		}
	}
}

// BenchmarkAppendIndexed is BenchmarkAppend with an index.
func BenchmarkAppendIndexed(b *testing.B) {
	d, err := tasklog.OpenIndexedDir(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = d.Close() }()
	line := tasklog.AppendRecord(nil, tasklog.Record{Stream: tasklog.Stdout, At: time.Now(), Data: bytes.Repeat([]byte("x"), 502)})
	a, off := attempt(1, 0, 1), int64(0)
	b.SetBytes(int64(len(line)))
	for b.Loop() {
		if off, err = d.Append(b.Context(), a, off, line); err != nil {
			b.Fatal(err)
		}
	}
}
