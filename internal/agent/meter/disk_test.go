package meter

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
)

func fill(tb testing.TB, dir string, files int) {
	tb.Helper()
	for i := range files {
		if err := os.WriteFile(filepath.Join(dir, strconv.Itoa(i)), nil, 0o600); err != nil {
			tb.Fatal(err)
		}
	}
}

// TestEmptyFilesCount checks that empty files count as 4 KiB each, that a walk ends when the limit is exceeded, and that there is a limit of files only
// without one.
func TestEmptyFilesCount(t *testing.T) {
	dir := t.TempDir()
	fill(t, dir, 20)
	folders := []string{dir}
	w := walker{maxEntries: 21, maxSize: 1 << 40}
	if err := w.walk(t.Context(), folders); err != nil || w.entries != 21 || w.size < 21*minEntry {
		t.Errorf("%+v %v", w, err)
	}
	w = walker{maxEntries: 20, maxSize: 1 << 40}
	if err := w.walk(t.Context(), folders); !errors.Is(err, errTooMany) {
		t.Errorf("more files than the limit are counted: %v", err)
	}
	w = walker{maxEntries: 1 << 30, maxSize: 20 * minEntry}
	if err := w.walk(t.Context(), append(folders, dir, dir)); err != nil || !w.full() {
		t.Errorf("%+v %v", w, err)
	}
	free, limited := &subject{}, &subject{Subject: Subject{Task: &run.Task{}, Isolation: &run.IsolationSpec{WatchDisk: 1}}}
	if a, b := free.walker(), limited.walker(); a.maxEntries != maxFiles || b.maxEntries <= maxFiles || b.maxSize != 1 {
		t.Errorf("%+v without a disk limit, %+v with one", a, b)
	}
}

// TestDeepFoldersAreNoticed checks that folders with a path that is too long are an error rather than nothing.
func TestDeepFoldersAreNoticed(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	name := strings.Repeat("d", 200)
	for range 30 {
		if err := os.Mkdir(name, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chdir(name); err != nil { //nolint:usetesting // deeper than a path can name
			t.Fatal(err)
		}
	}
	if err := os.WriteFile("hidden", make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	w := walker{maxEntries: 1 << 30, maxSize: 1 << 40}
	if err := w.walk(t.Context(), []string{dir}); !errors.Is(err, errTooDeep) {
		t.Errorf("%+v %v", w, err)
	}
	sub := &subject{Subject: Subject{Task: &run.Task{Grant: muster.Grant{Disk: 1 << 30}}, Isolation: &run.IsolationSpec{WatchDisk: 1 << 30}, Folders: run.Folders{Base: dir}}}
	sub.walk(t.Context())
	if stopped, _ := sub.check(sub.started, &muster.Sample{}); stopped == nil || stopped.Reason != muster.DiskLimit {
		t.Errorf("the task continues: %+v", stopped)
	}
}

// BenchmarkWalk measures a walk over 100,000 files in 100 folders.
func BenchmarkWalk(b *testing.B) {
	top := b.TempDir()
	for i := range 100 {
		dir := filepath.Join(top, "d"+strconv.Itoa(i))
		if err := os.Mkdir(dir, 0o700); err != nil {
			b.Fatal(err)
		}
		fill(b, dir, 1000)
	}
	b.ReportAllocs()
	for b.Loop() {
		w := walker{maxEntries: 1 << 30, maxSize: 1 << 40}
		if err := w.walk(b.Context(), []string{top}); err != nil || w.entries != 100_101 {
			b.Fatal(w, err)
		}
	}
}
