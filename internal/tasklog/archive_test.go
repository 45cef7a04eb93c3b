package tasklog_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/tasklog"
)

// TestSetAside checks that an archived log is kept under another name, and that the next log of the same attempt starts empty, with its own
// index, although the file of the first one was open.
func TestSetAside(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	d, err := tasklog.OpenIndexedDir(root)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	a, other := attempt(1, 0, 1), attempt(1, 1, 1)
	if had, err := d.Archive(t.Context(), a); had || err != nil {
		t.Errorf("a missing log: %t, %v", had, err)
	}
	old, _ := makeLog([]int{300 << 10, 300 << 10, 300 << 10})
	mustAppend(t, d, a, 0, string(old))
	mustAppend(t, d, other, 0, "other")
	if had, err := d.Archive(t.Context(), a); !had || err != nil {
		t.Fatalf("an existing log: %t, %v", had, err)
	}
	if size, err := d.Size(t.Context(), a); size != 0 || err != nil {
		t.Errorf("after Archive the log has %d bytes, %v", size, err)
	}
	aside, err := filepath.Glob(filepath.Join(root, "0k", "1", "0", "0.1.log.[0-9]*"))
	if err != nil || len(aside) != 1 {
		t.Fatalf("the log is kept as %q, %v", aside, err)
	}
	if b, err := os.ReadFile(aside[0]); string(b) != string(old) || err != nil {
		t.Errorf("the archived log has %d bytes of %d, %v", len(b), len(old), err)
	}

	log, starts := makeLog([]int{100 << 10, 100 << 10, 100 << 10, 100 << 10, 100 << 10, 100 << 10, 100 << 10, 100 << 10})
	mustAppend(t, d, a, 0, string(log))
	if got := content(t, d, a); got != string(log) {
		t.Errorf("the next log has %d bytes, want %d", len(got), len(log))
	}
	for at := int64(0); at < int64(len(log)); at += 50 << 10 {
		if start, err := d.RecordBefore(t.Context(), a, at); !starts[start] || start > at || err != nil {
			t.Errorf("no record of the next log begins at %d, the one before %d was requested: %v", start, at, err)
		}
	}
	if got := content(t, d, other); got != "other" {
		t.Errorf("the log of another attempt is %q", got)
	}
}

// TestLastJob checks that only jobs with a log count.
func TestLastJob(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	d := openDir(t, root)
	check := func(want muster.JobID) {
		t.Helper()
		if last, err := d.LastJob(); last != want || err != nil {
			t.Errorf("the last job with logs is %s, %v; want %s", last, err, want)
		}
	}
	check(0)
	for _, id := range []muster.JobID{9, 12, 3} {
		mustAppend(t, d, attempt(id, 0, 1), 0, "x")
	}
	for _, name := range []string{"-20", "lost+found", "20.old", "0x30"} {
		if err := os.Mkdir(filepath.Join(root, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	check(12)
}
