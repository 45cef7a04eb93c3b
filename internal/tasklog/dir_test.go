package tasklog_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/tasklog"
	"pgregory.net/rapid"
)

func attempt(job muster.JobID, num, n int) muster.AttemptID {
	return muster.AttemptID{Task: muster.TaskID{Job: job, Num: num}, N: n}
}

func openDir(t *testing.T, path string) *tasklog.Dir {
	t.Helper()
	d, err := tasklog.OpenDir(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func mustAppend(t *testing.T, d tasklog.Store, a muster.AttemptID, offset int64, data string) {
	t.Helper()
	size, err := d.Append(t.Context(), a, offset, []byte(data))
	if err != nil || size < offset+int64(len(data)) {
		t.Fatalf("Append(%s, %d, %q) = %d, %v", a, offset, data, size, err)
	}
}

func content(t *testing.T, d tasklog.Store, a muster.AttemptID) string {
	t.Helper()
	r, err := d.Open(t.Context(), a, 0)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(r)
	if err := errors.Join(err, r.Close()); err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// However a worker's log is cut, repeated and interrupted, the copy is always a
// prefix of it, and Append returns where to continue.
func TestCopyIsAPrefix(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	round := 0
	rapid.Check(t, func(rt *rapid.T) {
		round++
		d := openDir(t, filepath.Join(root, strconv.Itoa(round)))
		a := attempt(1, 7, 1)
		source := rapid.SliceOfN(rapid.Byte(), 1, 300).Draw(rt, "source")
		size := int64(0)
		for range rapid.IntRange(1, 20).Draw(rt, "steps") {
			from := rapid.IntRange(0, len(source)-1).Draw(rt, "from")
			to := rapid.IntRange(from, len(source)).Draw(rt, "to")
			if rapid.Bool().Draw(rt, "reopen") {
				if err := d.Close(); err != nil {
					rt.Fatal(err)
				}
				d = openDir(t, filepath.Join(root, strconv.Itoa(round)))
			}
			got, err := d.Append(t.Context(), a, int64(from), source[from:to])
			if int64(from) > size {
				if muster.CodeOf(err) != muster.Conflict || got != size {
					rt.Fatalf("a gap: size %d and %v, want %d and a Conflict", got, err, size)
				}
				continue
			}
			size = max(size, int64(to))
			if err != nil || got != size {
				rt.Fatalf("Append(%d, %d bytes) = %d, %v, want %d", from, to-from, got, err, size)
			}
		}
		if n, err := d.Size(t.Context(), a); err != nil || n != size {
			rt.Fatalf("Size = %d, %v, want %d", n, err, size)
		}
		if got := content(t, d, a); got != string(source[:size]) {
			rt.Fatalf("the copy %q is not a prefix of %q", got, source)
		}
	})
}

func TestEmptyOutputCreatesNoFile(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	d := openDir(t, root)
	a := attempt(1, 0, 1)
	mustAppend(t, d, a, 0, "")
	if _, err := d.Append(t.Context(), a, 5, []byte("late")); muster.CodeOf(err) != muster.Conflict {
		t.Fatalf("a gap in no log: %v", err)
	}
	if n, err := d.Size(t.Context(), a); n != 0 || err != nil {
		t.Fatalf("Size = %d, %v", n, err)
	}
	if err := d.Sync(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	if got := content(t, d, a); got != "" {
		t.Fatalf("read %q", got)
	}
	if entries, err := os.ReadDir(root); err != nil || len(entries) != 0 {
		t.Fatalf("%v, %v: want an empty directory", entries, err)
	}
}

func TestReadBeyondTheEnd(t *testing.T) {
	t.Parallel()
	d := openDir(t, t.TempDir())
	a := attempt(3, 4, 2)
	if _, err := d.Append(t.Context(), a, 0, []byte("output")); err != nil {
		t.Fatal(err)
	}
	for _, offset := range []int64{6, 7, 1 << 40, math.MaxInt64 - 1, math.MaxInt64} {
		r, err := d.Open(t.Context(), a, offset)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(r); err != nil || len(b) > 0 {
			t.Errorf("at %d: %q, %v", offset, b, err)
		}
		_ = r.Close()
	}
}

func TestReaderFollowsALogFromBeforeItsFirstByte(t *testing.T) {
	t.Parallel()
	d := openDir(t, t.TempDir())
	a := attempt(3, 4, 2)
	r, err := d.Open(t.Context(), a, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	want := bytes.Repeat([]byte("line of output\n"), 1000)
	var wg sync.WaitGroup
	wg.Go(func() {
		for off := 0; off < len(want); off += 70 {
			if _, err := d.Append(t.Context(), a, int64(off), want[off:min(off+70, len(want))]); err != nil {
				t.Error(err)
				return
			}
			runtime.Gosched()
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var got []byte
	for len(got) < len(want) {
		if err := d.Wait(ctx, a, int64(len(got))); err != nil {
			t.Fatalf("after %d bytes: %v", len(got), err)
		}
		b, err := io.ReadAll(r)
		if err != nil || len(b) == 0 {
			t.Fatalf("after Wait: %d bytes, %v", len(b), err)
		}
		got = append(got, b...)
	}
	wg.Wait()
	if !bytes.Equal(got, want) {
		t.Fatal("the reader saw other bytes than were appended")
	}
}

func TestWaitStopsWithItsContext(t *testing.T) {
	t.Parallel()
	d := openDir(t, t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	var wg sync.WaitGroup
	wg.Go(func() { done <- d.Wait(ctx, attempt(1, 1, 1), 0) })
	cancel()
	wg.Wait()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Fatalf("Wait = %v", err)
	}
}

func TestOpenFilesAreLimited(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/proc/self/fd"); err != nil {
		t.Skip("this system does not list open files")
	}
	for _, keep := range []int{0, 16, 300} {
		testOpenFiles(t, keep)
	}
}

// testOpenFiles appends to many logs in turn with a limit; 0 means the default.
func testOpenFiles(t *testing.T, keep int) {
	t.Helper()
	root := t.TempDir()
	d := openDir(t, root)
	limit := 64
	if keep > 0 {
		d.KeepOpen(keep)
		limit = keep
	}
	const logs = 500
	for round := range 2 {
		for i := range logs {
			mustAppend(t, d, attempt(1, i, 1), int64(round), "x")
		}
	}
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	open := 0
	for _, fd := range fds {
		target, err := os.Readlink(filepath.Join("/proc/self/fd", fd.Name()))
		if err == nil && len(target) > len(root) && target[:len(root)] == root {
			open++
		}
	}
	if open != limit {
		t.Fatalf("%d of %d logs are open, want %d", open, logs, limit)
	}
	for i := range logs {
		if got := content(t, d, attempt(1, i, 1)); got != "xx" {
			t.Fatalf("log %d is %q", i, got)
		}
	}
}

func TestRemoveDeletesLogsOfOneJob(t *testing.T) {
	t.Parallel()
	d := openDir(t, t.TempDir())
	for job := range muster.JobID(3) {
		mustAppend(t, d, attempt(job+1, 0, 1), 0, "a")
		mustAppend(t, d, attempt(job+1, 5000, 2), 0, "b")
	}
	if err := d.Remove(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	for job := range muster.JobID(3) {
		want := "b"
		if job+1 == 2 {
			want = ""
		}
		if got := content(t, d, attempt(job+1, 5000, 2)); got != want {
			t.Errorf("job %d has %q, want %q", job+1, got, want)
		}
	}
	if err := d.Remove(t.Context(), 99); err != nil {
		t.Fatalf("a job without logs: %v", err)
	}
	// The name may be used again.
	mustAppend(t, d, attempt(2, 0, 1), 0, "new")
	if got := content(t, d, attempt(2, 0, 1)); got != "new" {
		t.Fatalf("read %q", got)
	}
}

func TestRemoveAttemptKeepsOthersAndRemovesEmptyFolders(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	d := openDir(t, root)
	one, two := attempt(1, 0, 1), attempt(1, 0, 2)
	mustAppend(t, d, one, 0, "first")
	mustAppend(t, d, two, 0, "second")
	if err := d.RemoveAttempt(t.Context(), one); err != nil {
		t.Fatal(err)
	}
	if a, b := content(t, d, one), content(t, d, two); a != "" || b != "second" {
		t.Fatalf("left %q and %q", a, b)
	}
	for range 2 {
		if err := d.RemoveAttempt(t.Context(), two); err != nil {
			t.Fatal(err)
		}
	}
	if entries, err := os.ReadDir(root); err != nil || len(entries) != 0 {
		t.Fatalf("%v, %v: want an empty directory", entries, err)
	}
}

// Logs of short tasks are created and removed in the same directory at the same time, also by the Dirs of a worker and its shim.
func TestRetainDeletesOtherLogs(t *testing.T) {
	root := t.TempDir()
	d := openDir(t, root)
	keep, others := attempt(1, 1001, 2), []muster.AttemptID{attempt(1, 1001, 1), attempt(1, 3, 1), attempt(2, 0, 1)}
	mustAppend(t, d, keep, 0, "kept")
	for _, a := range others {
		mustAppend(t, d, a, 0, "gone")
	}
	if err := d.Retain(func(a muster.AttemptID) bool { return a == keep }); err != nil {
		t.Fatal(err)
	}
	if got := content(t, d, keep); got != "kept" {
		t.Errorf("the log that is wanted has %q", got)
	}
	for _, a := range others {
		if size, err := d.Size(t.Context(), a); err != nil || size != 0 {
			t.Errorf("the log of %s has %d bytes, %v", a, size, err)
		}
	}
	if list, err := os.ReadDir(root); err != nil || len(list) != 1 {
		t.Errorf("the directory has %v, %v", list, err)
	}
}

func TestConcurrentAppendsAndRemovals(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	dirs := []*tasklog.Dir{openDir(t, root), openDir(t, root)}
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			d := dirs[w%2]
			for i := range 200 {
				a := attempt(1, w, i+1)
				if _, err := d.Append(t.Context(), a, 0, []byte("out")); err != nil {
					t.Errorf("append: %v", err)
					return
				}
				if err := errors.Join(d.Sync(t.Context(), a), d.RemoveAttempt(t.Context(), a)); err != nil {
					t.Errorf("remove: %v", err)
					return
				}
			}
		})
	}
	wg.Wait()
}

func BenchmarkAppend(b *testing.B) {
	d, err := tasklog.OpenDir(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = d.Close() }()
	line := bytes.Repeat([]byte("x"), 512)
	a, off := attempt(1, 0, 1), int64(0)
	b.SetBytes(int64(len(line)))
	for b.Loop() {
		if off, err = d.Append(b.Context(), a, off, line); err != nil {
			b.Fatal(err)
		}
	}
}

// A worker and its shim use one directory: each sees what the other wrote.
func TestTwoDirsShareALog(t *testing.T) {
	root := t.TempDir()
	one, err := tasklog.OpenDir(root)
	if err != nil {
		t.Fatal(err)
	}
	defer one.Close()
	other, err := tasklog.OpenDir(root)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	a := muster.AttemptID{Task: muster.TaskID{Job: 1}, N: 1}
	at := int64(0)
	for i, d := range []*tasklog.Dir{one, other, one, other} {
		if size, err := d.Size(t.Context(), a); err != nil || size != at {
			t.Fatalf("round %d: size %d, %v; want %d", i, size, err, at)
		}
		if at, err = d.Append(t.Context(), a, at, []byte("abc")); err != nil || at != int64(3*(i+1)) {
			t.Fatalf("round %d: %d, %v", i, at, err)
		}
	}
	if _, err := one.Append(t.Context(), a, at+1, []byte("x")); muster.CodeOf(err) != muster.Conflict {
		t.Errorf("a gap is accepted: %v", err)
	}
	if err := other.CloseAttempt(a); err != nil {
		t.Error(err)
	}
	if err := one.RemoveAttempt(t.Context(), a); err != nil {
		t.Error(err)
	}
	if size, err := other.Size(t.Context(), a); err != nil || size != 0 {
		t.Errorf("after it was removed: size %d, %v", size, err)
	}
}

// BenchmarkAppendMany appends a line to each of 1,000 logs in turn, as tasks that train do.
func BenchmarkAppendMany(b *testing.B) {
	d, err := tasklog.OpenIndexedDir(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	defer d.Close()
	d.KeepOpen(1024)
	line := bytes.Repeat([]byte("x"), 100)
	var sizes [1000]int64
	for i := 0; b.Loop(); i++ {
		n := i % len(sizes)
		if sizes[n], err = d.Append(b.Context(), attempt(1, n, 1), sizes[n], line); err != nil {
			b.Fatal(err)
		}
	}
}
