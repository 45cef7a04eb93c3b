package sqlite_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/store/sqlite"
)

// smallDisk mounts a file system of a few megabytes.
func smallDisk(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=4m"); err != nil {
		t.Skipf("mounting a small file system takes root: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// fill writes a file until the disk is full.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	block := make([]byte, 4096)
	for err == nil {
		_, err = f.Write(block)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestFullDiskRefusesCommitsUntilThereIsSpace(t *testing.T) {
	dir := smallDisk(t)
	path, filler := filepath.Join(dir, "muster.db"), filepath.Join(dir, "filler")
	s, err := sqlite.Open(t.Context(), path, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	next := muster.JobID(1)
	for range 3 {
		for range 10 {
			if err := s.Commit(t.Context(), batch(next)); err != nil {
				t.Fatal(err)
			}
			next++
		}
		fill(t, filler)
		refused := 0
		for range 50 { // the WAL may have some room left
			err := s.Commit(t.Context(), batch(next))
			if err == nil {
				next++
				continue
			}
			if muster.CodeOf(err) != muster.StorageFull {
				t.Fatalf("on a full disk: %v, want a StorageFull error", err)
			}
			refused++
		}
		if refused == 0 {
			t.Fatal("a full disk accepted everything")
		}
		if last := checkJobs(t, s); last != next-1 {
			t.Fatalf("job %d is the last on the full disk, want %d", last, next-1)
		}
		if err := os.Remove(filler); err != nil {
			t.Fatal(err)
		}
		if err := s.Commit(t.Context(), batch(next)); err != nil {
			t.Fatalf("with space again: %v", err)
		}
		next++
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err = sqlite.Open(t.Context(), path, sqlite.Options{}); err != nil {
		t.Fatal(err)
	}
	if last := checkJobs(t, s); last != next-1 {
		t.Fatalf("after a restart job %d is the last, want %d", last, next-1)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// A server with a full disk can still be started and read.
func TestFullDiskCanBeReadAndOpened(t *testing.T) {
	dir := smallDisk(t)
	path := filepath.Join(dir, "muster.db")
	s, err := sqlite.Open(t.Context(), path, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Commit(t.Context(), batch(1)); err != nil {
		t.Fatal(err)
	}
	fill(t, filepath.Join(dir, "filler"))
	if _, err := s.Job(t.Context(), 1); err != nil {
		t.Fatalf("reading on a full disk: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s, err = sqlite.Open(t.Context(), path, sqlite.Options{})
	if err != nil {
		if muster.CodeOf(err) != muster.StorageFull {
			t.Fatalf("opening on a full disk: %v, want success or a StorageFull error", err)
		}
		return
	}
	checkJobs(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestSnapshotOnAFullDisk(t *testing.T) {
	dir := smallDisk(t)
	s := open(t, filepath.Join(t.TempDir(), "muster.db"))
	commitMany(t, s, 1, 100)
	fill(t, filepath.Join(dir, "filler"))
	_, err := s.Snapshot(t.Context(), filepath.Join(dir, "copy.db"))
	if muster.CodeOf(err) != muster.StorageFull {
		t.Fatalf("got %v, want a StorageFull error", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("left %v, %v", entries, err)
	}
}
