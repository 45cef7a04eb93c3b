package sqlite_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/store/sqlite"
)

// crashedCopy returns a copy of a data directory after kill -9 of its server, with the given number of jobs.
func crashedCopy(t *testing.T, jobs muster.JobID) string {
	t.Helper()
	from := t.TempDir()
	s, err := sqlite.Open(t.Context(), filepath.Join(from, "muster.db"), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for id := muster.JobID(1); id <= jobs; id++ {
		if err := s.Commit(t.Context(), batch(id)); err != nil {
			t.Fatal(err)
		}
	}
	to := t.TempDir()
	copyFiles(t, from, to, "muster.db", "muster.db-wal", "last-commit")
	return to
}

func copyFiles(t *testing.T, from, to string, names ...string) {
	t.Helper()
	for _, name := range names {
		b, err := os.ReadFile(filepath.Join(from, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(to, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// nextJobAfterOpen opens the database of a directory, closes it, and returns the next job number.
func nextJobAfterOpen(t *testing.T, dir string, o sqlite.Options) muster.JobID {
	t.Helper()
	s, err := sqlite.Open(t.Context(), filepath.Join(dir, "muster.db"), o)
	if err != nil {
		t.Fatal(err)
	}
	snap, err := s.Load(t.Context())
	if err := errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
	return snap.NextJob
}

// A loss of acknowledged commits is detected before anything is written, and no job number is used twice
// after the loss was accepted.
func TestLostCommitsAreDetected(t *testing.T) {
	t.Parallel()
	const jobs = 30
	wal := func(change func(b []byte) []byte) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			t.Helper()
			path := filepath.Join(dir, "muster.db-wal")
			b, err := os.ReadFile(path)
			if err != nil || len(b) < 100_000 {
				t.Fatalf("the write-ahead log has %d bytes: %v", len(b), err)
			}
			if err := os.WriteFile(path, change(b), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, c := range map[string]struct {
		damage  func(*testing.T, string)
		used    muster.JobID
		wantErr string
	}{
		"a bit of the log is flipped": {wal(func(b []byte) []byte { b[len(b)/2] ^= 4; return b }), 0, "commits are missing"},
		"a bit of its end is flipped": {wal(func(b []byte) []byte { b[len(b)-3000] ^= 4; return b }), 0, "last 1 commits are missing, and with them job 30"},
		"the log is cut in half":      {wal(func(b []byte) []byte { return b[:len(b)/2] }), 0, "commits are missing"},
		"the log is gone": {func(t *testing.T, dir string) {
			t.Helper()
			if err := os.Remove(filepath.Join(dir, "muster.db-wal")); err != nil {
				t.Fatal(err)
			}
		}, 0, "and with them jobs 1 to 30"},
		"an older copy is put back": {func(t *testing.T, dir string) {
			t.Helper()
			copyFiles(t, crashedCopy(t, 3), dir, "muster.db", "muster.db-wal")
		}, 0, "not the one that was last used there, and with them jobs 4 to 30"},
		"all is gone but the mark": {func(t *testing.T, dir string) {
			t.Helper()
			if err := errors.Join(os.Remove(filepath.Join(dir, "muster.db")), os.Remove(filepath.Join(dir, "muster.db-wal"))); err != nil {
				t.Fatal(err)
			}
		}, 0, "jobs 1 to 30"},
		"only logs show it": {func(t *testing.T, dir string) {
			t.Helper()
			if err := os.Remove(filepath.Join(dir, "last-commit")); err != nil {
				t.Fatal(err)
			}
		}, jobs + 2, "older than the logs beside it, and with them jobs 31 to 32"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := crashedCopy(t, jobs)
			c.damage(t, dir)
			before, _ := os.ReadFile(filepath.Join(dir, "muster.db-wal"))
			path := filepath.Join(dir, "muster.db")
			for range 2 { // nothing changes by a start that is refused
				_, err := sqlite.Open(t.Context(), path, sqlite.Options{UsedJob: c.used})
				if muster.CodeOf(err) != muster.Conflict || !strings.Contains(err.Error(), c.wantErr) || !strings.Contains(err.Error(), "--accept-loss") {
					t.Fatalf("Open does not fail with %q: %v", c.wantErr, err)
				}
			}
			if after, _ := os.ReadFile(filepath.Join(dir, "muster.db-wal")); !bytes.Equal(before, after) {
				t.Error("the failed Open changed the write-ahead log")
			}
			last := max(jobs, c.used)
			if next := nextJobAfterOpen(t, dir, sqlite.Options{UsedJob: c.used, AcceptLoss: true}); next != last+1 {
				t.Errorf("the next job gets number %d, want %d", next, last+1)
			}
			if next := nextJobAfterOpen(t, dir, sqlite.Options{UsedJob: c.used}); next != last+1 {
				t.Errorf("after the next start it gets number %d, want %d", next, last+1)
			}
		})
	}
}

// Open succeeds after a kill, an orderly stop, a loss of the mark, and a restore of the whole directory.
func TestOrdinaryStartsReportNoLoss(t *testing.T) {
	t.Parallel()
	dir := crashedCopy(t, 3)
	older := t.TempDir()
	copyFiles(t, dir, older, "muster.db", "muster.db-wal", "last-commit")
	for range 2 {
		if next := nextJobAfterOpen(t, dir, sqlite.Options{UsedJob: 3}); next != 4 {
			t.Fatalf("the next job gets number %d", next)
		}
	}
	path := filepath.Join(dir, "last-commit")
	intact, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	ahead := bytes.Replace(intact, []byte(" 0000"), []byte(" 0001"), 1) // a digit of the number of the last commit
	if bytes.Equal(ahead, intact) {
		t.Fatalf("the tag is %q", intact)
	}
	for name, b := range map[string][]byte{"none": nil, "a damaged one": []byte("muster 1 abc"), "an empty one": {}, "one with a wrong digit": ahead, "half of one": intact[:len(intact)/2]} {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if b != nil {
			if err := os.WriteFile(path, b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if next := nextJobAfterOpen(t, dir, sqlite.Options{}); next != 4 {
			t.Fatalf("with %s as the mark the next job gets number %d", name, next)
		}
		if b, err := os.ReadFile(path); err != nil || !bytes.Equal(b, intact) {
			t.Errorf("with %s as the mark Open leaves %q, %v; want %q", name, b, err, intact)
		}
	}
	s, err := sqlite.Open(t.Context(), filepath.Join(dir, "muster.db"), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Commit(t.Context(), batch(4)), s.Close()); err != nil {
		t.Fatal(err)
	}
	// The mark of before: as after a loss of power.
	copyFiles(t, older, dir, "last-commit")
	if next := nextJobAfterOpen(t, dir, sqlite.Options{UsedJob: 4}); next != 5 {
		t.Fatalf("with an older mark the next job gets number %d", next)
	}
	if next := nextJobAfterOpen(t, older, sqlite.Options{UsedJob: 3}); next != 4 {
		t.Fatalf("in the restored directory the next job gets number %d", next)
	}
}

// A database has a new id after an accepted loss: replacing it by the lost one is detected, and vice versa.
func TestReplacedDatabaseIsDetected(t *testing.T) {
	t.Parallel()
	dir := crashedCopy(t, 3)
	lost := t.TempDir()
	copyFiles(t, dir, lost, "muster.db", "muster.db-wal", "last-commit")
	if err := os.Truncate(filepath.Join(dir, "muster.db-wal"), 100_000); err != nil {
		t.Fatal(err)
	}
	nextJobAfterOpen(t, dir, sqlite.Options{AcceptLoss: true})
	for name, c := range map[string]struct{ from, to string }{"the lost one turns up": {lost, dir}, "the other way round": {dir, lost}} {
		to := t.TempDir()
		copyFiles(t, c.to, to, "last-commit")
		copyFiles(t, c.from, to, "muster.db", "muster.db-wal")
		s, err := sqlite.Open(t.Context(), filepath.Join(to, "muster.db"), sqlite.Options{})
		if muster.CodeOf(err) != muster.Conflict || !strings.Contains(err.Error(), "not the one that was last used there") {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			_ = s.Close()
		}
	}
}

// Accepting a loss does not open a database with any damaged page.
func TestDamagedDatabaseIsRefused(t *testing.T) {
	t.Parallel()
	dir := crashedCopy(t, 3)
	nextJobAfterOpen(t, dir, sqlite.Options{}) // moves the write-ahead log into the database
	whole, err := os.ReadFile(filepath.Join(dir, "muster.db"))
	if err != nil {
		t.Fatal(err)
	}
	mark, err := os.ReadFile(filepath.Join(dir, "last-commit"))
	if err != nil {
		t.Fatal(err)
	}
	const pageSize = 4096
	byIntegrityCheck := 0
	for at := 0; at < len(whole); at += pageSize {
		to := t.TempDir()
		damaged := bytes.Clone(whole)
		clear(damaged[at : at+pageSize])
		for name, b := range map[string][]byte{"muster.db": damaged, "last-commit": mark} {
			if err := os.WriteFile(filepath.Join(to, name), b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		// The logs show a job that the database lacks.
		s, err := sqlite.Open(t.Context(), filepath.Join(to, "muster.db"), sqlite.Options{UsedJob: 9, AcceptLoss: true})
		if err == nil {
			_ = s.Close()
			t.Errorf("page %d of %d is damaged, and the database is opened", at/pageSize, len(whole)/pageSize)
		} else if strings.Contains(err.Error(), "is also damaged") {
			byIntegrityCheck++
		}
	}
	if byIntegrityCheck == 0 {
		t.Error("no damage was found by the integrity check")
	}
}
