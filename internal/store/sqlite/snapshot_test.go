package sqlite_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ncruces/go-sqlite3"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/store/sqlite"
)

// commitMany commits jobs from first to last.
func commitMany(t *testing.T, s *sqlite.Store, first, last muster.JobID) {
	t.Helper()
	for id := first; id <= last; id++ {
		if err := s.Commit(t.Context(), batch(id)); err != nil {
			t.Fatal(err)
		}
	}
}

// A snapshot is the state after one commit, although commits continue while it is taken.
func TestSnapshotIsConsistent(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, filepath.Join(dir, "muster.db"))
	const before = 400 // some megabytes: several steps
	commitMany(t, s, 1, before)
	stop, stopped := make(chan struct{}), make(chan muster.JobID)
	go func() {
		id := muster.JobID(before)
		defer func() { stopped <- id }()
		for {
			select {
			case <-stop:
				return
			default:
			}
			if err := s.Commit(context.WithoutCancel(t.Context()), batch(id+1)); err != nil {
				t.Error(err)
				return
			}
			id++
		}
	}()
	path := filepath.Join(dir, "copy", "muster.db")
	if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	info, err := s.Snapshot(t.Context(), path)
	close(stop)
	last := <-stopped
	if err != nil {
		t.Fatal(err)
	}
	if last == before {
		t.Fatal("nothing was committed during the snapshot")
	}
	if info.NextJob <= before || info.NextJob > last+1 {
		t.Errorf("the next job of the snapshot is %d, want %d to %d", info.NextJob, before+1, last+1)
	}
	verified, err := sqlite.Verify(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if verified != info {
		t.Errorf("verified %+v, want %+v", verified, info)
	}
	if next := checkJobs(t, open(t, path)) + 1; next != info.NextJob {
		t.Errorf("the snapshot has jobs up to %d, want %d", next-1, info.NextJob-1)
	}
}

// A snapshot takes none of the connections of readers.
func TestSnapshotDuringReads(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, filepath.Join(dir, "muster.db"))
	commitMany(t, s, 1, 3)
	release := s.OccupyReaders(t)
	defer release()
	if _, err := s.Snapshot(t.Context(), filepath.Join(dir, "copy.db")); err != nil {
		t.Fatal(err)
	}
}

func TestSnapshotIsPrivate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, filepath.Join(dir, "muster.db"))
	path := filepath.Join(dir, "copy.db")
	if _, err := s.Snapshot(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("the mode is %o, want 600", info.Mode().Perm())
	}
	_, err = s.Snapshot(t.Context(), path)
	if !errors.Is(err, fs.ErrExist) {
		t.Errorf("a snapshot over a file: %v, want an error that it exists", err)
	}
}

func TestInterruptedSnapshotLeavesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, filepath.Join(dir, "muster.db"))
	commitMany(t, s, 1, 300)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	copies := filepath.Join(dir, "copies")
	if err := os.Mkdir(copies, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Snapshot(ctx, filepath.Join(copies, "copy.db")); muster.CodeOf(err) != muster.Unavailable {
		t.Fatalf("an interrupted snapshot: %v, want an Unavailable error", err)
	}
	entries, err := os.ReadDir(copies)
	if err != nil || len(entries) > 0 {
		t.Errorf("left %v, %v", entries, err)
	}
}

func TestVerify(t *testing.T) {
	t.Parallel()
	copyOf := func(t *testing.T) string {
		t.Helper()
		dir := t.TempDir()
		s := open(t, filepath.Join(dir, "muster.db"))
		commitMany(t, s, 1, 100)
		path := filepath.Join(dir, "copy", "copy.db")
		if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Snapshot(t.Context(), path); err != nil {
			t.Fatal(err)
		}
		return path
	}
	t.Run("changes nothing", func(t *testing.T) {
		t.Parallel()
		path := copyOf(t)
		before, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := sqlite.Verify(t.Context(), path); err != nil {
			t.Fatal(err)
		}
		after, err := os.ReadFile(path)
		if err != nil || string(after) != string(before) {
			t.Errorf("the file changed, or %v", err)
		}
		entries, err := os.ReadDir(filepath.Dir(path))
		if err != nil || len(entries) != 1 {
			t.Errorf("beside the file: %v, %v", entries, err)
		}
	})
	t.Run("a newer schema", func(t *testing.T) {
		t.Parallel()
		path := copyOf(t)
		db, err := sqlite3.Open("file:" + path)
		if err != nil {
			t.Fatal(err)
		}
		if err := db.Exec("PRAGMA journal_mode = DELETE; INSERT INTO goose_db_version (version_id, is_applied) VALUES (9999, 1)"); err != nil {
			t.Fatal(err)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		_, err = sqlite.Verify(t.Context(), path)
		if muster.CodeOf(err) != muster.Conflict || !strings.Contains(err.Error(), "version 9999") {
			t.Errorf("got %v, want a Conflict that names version 9999", err)
		}
	})
	t.Run("damage", func(t *testing.T) {
		t.Parallel()
		path := copyOf(t)
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt(make([]byte, 64<<10), 8<<10); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := sqlite.Verify(t.Context(), path); muster.CodeOf(err) != muster.Internal {
			t.Errorf("got %v, want an Internal error", err)
		}
	})
	t.Run("another file", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "text")
		if err := os.WriteFile(path, []byte(strings.Repeat("not a database\n", 1000)), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := sqlite.Verify(t.Context(), path); err == nil {
			t.Error("no error")
		}
	})
}

// A stopped server's database is copied with its write-ahead log, and stays as it is.
func TestStopped(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "muster.db")
	if _, err := sqlite.OpenStopped(t.Context(), path); muster.CodeOf(err) != muster.NotFound {
		t.Errorf("without a database: %v, want NotFound", err)
	}
	last := workUntilKilled(t, path, 20)
	before := readDir(t, dir)
	if len(before["muster.db-wal"]) == 0 {
		t.Fatal("the killed server left no write-ahead log")
	}
	d, err := sqlite.OpenStopped(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sqlite.Open(t.Context(), path, sqlite.Options{}); muster.CodeOf(err) != muster.Conflict {
		t.Errorf("a server started: %v, want a Conflict", err)
	}
	copied := filepath.Join(t.TempDir(), "copy.db")
	if _, err := d.Snapshot(t.Context(), copied); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	after := readDir(t, dir)
	for _, name := range []string{"muster.db", "muster.db-wal"} {
		if before[name] != after[name] {
			t.Errorf("%s changed", name)
		}
	}
	if got := checkJobs(t, open(t, copied)); got < last {
		t.Errorf("the copy has jobs up to %d, want %d", got, last)
	}
	s := open(t, path)
	if _, err := sqlite.OpenStopped(t.Context(), path); muster.CodeOf(err) != muster.Conflict {
		t.Errorf("of a running server: %v, want a Conflict", err)
	}
	checkJobs(t, s)
}

func readDir(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]string)
	for _, e := range entries {
		content, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		all[e.Name()] = string(content)
	}
	return all
}
