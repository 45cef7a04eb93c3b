package sqlite

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/store"
	"github.com/ncruces/go-sqlite3/driver"
)

// edit changes a database file behind the back of the store, which is closed.
func edit(t *testing.T, path string, f func(context.Context, *sql.DB) error) {
	t.Helper()
	db, err := driver.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := f(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestOlderSchemaIsMigratedAndKeepsItsRows(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "muster.db")
	edit(t, path, func(ctx context.Context, db *sql.DB) error {
		if err := claim(ctx, db, path); err != nil {
			return err
		}
		p, err := migrator(db)
		if err != nil {
			return err
		}
		if _, err := p.UpTo(ctx, 1); err != nil {
			return err
		}
		_, err = db.ExecContext(ctx, `INSERT INTO worker (id, name, state, price, resources, paused, draining)
			VALUES ('w1', 'old', 'active', 0, '{}', 0, 0)`)
		return err
	})
	s, err := Open(t.Context(), path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	workers, err := s.Workers(t.Context())
	if err != nil || len(workers) != 1 || workers[0].Name != "old" {
		t.Fatalf("workers of the older file: %v, %v", workers, err)
	}
	key := store.Key{ID: "k", Name: "k", Hash: strings.Repeat("0", 64), Role: "admin", CreatedAt: 1}
	if err := s.PutKey(t.Context(), key); err != nil {
		t.Fatalf("what the newer schema added: %v", err)
	}
}

func TestNewerSchemaIsRefusedAndUntouched(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "muster.db")
	s, err := Open(t.Context(), path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	edit(t, path, func(ctx context.Context, db *sql.DB) error {
		_, err := db.ExecContext(ctx, `INSERT INTO goose_db_version (version_id, is_applied) VALUES (99, 1)`)
		return err
	})
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	_, err = Open(t.Context(), path, Options{})
	if muster.CodeOf(err) != muster.Conflict {
		t.Fatalf("Open = %v, want a Conflict", err)
	}
	for _, part := range []string{path, "version 99", "knows versions up to", "newer muster"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not say %q", err, part)
		}
	}
	after, err := os.ReadFile(path)
	if err != nil || string(before) != string(after) {
		t.Fatalf("the refused file was changed (%v)", err)
	}
}

func TestOtherFilesAreRefused(t *testing.T) {
	t.Parallel()
	other := filepath.Join(t.TempDir(), "other.db")
	edit(t, other, func(ctx context.Context, db *sql.DB) error {
		_, err := db.ExecContext(ctx, "CREATE TABLE recipes (id INTEGER)")
		return err
	})
	if _, err := Open(t.Context(), other, Options{}); muster.CodeOf(err) != muster.Conflict || !strings.Contains(err.Error(), "another program") {
		t.Errorf("another program's database: %v", err)
	}
	text := filepath.Join(t.TempDir(), "text.db")
	if err := os.WriteFile(text, []byte(strings.Repeat("no database at all\n", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), text, Options{}); err == nil || !strings.Contains(err.Error(), text) {
		t.Errorf("a text file: %v", err)
	}
}

func TestSecondServerIsRefused(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "data", "muster.db")
	s, err := Open(t.Context(), path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), path, Options{}); muster.CodeOf(err) != muster.Conflict || !strings.Contains(err.Error(), "another server") {
		t.Fatalf("the second Open = %v, want a Conflict", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err = Open(t.Context(), path, Options{}); err != nil {
		t.Fatalf("after Close: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// The searches go by the indexes that are meant for them.
func TestSearchesUseTheirIndexes(t *testing.T) {
	t.Parallel()
	s, err := Open(t.Context(), filepath.Join(t.TempDir(), "muster.db"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	for query, want := range map[string]string{
		selectTasks:        "SEARCH task USING INTEGER PRIMARY KEY",
		selectLive:         "USING INDEX task_live",
		selectUnsuccessful: "USING INDEX task_not_succeeded",
		selectLoaded:       "USING INDEX task_live",
		"SELECT id FROM job WHERE id < 9 AND state < 4 ORDER BY id DESC": "job_live",
	} {
		var plan strings.Builder
		err := s.writer.query("EXPLAIN QUERY PLAN "+query, nil, func(c *columns) bool {
			c.n = 3 // the text
			plan.WriteString(c.text() + "\n")
			return true
		})
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(plan.String(), want) || strings.Contains(plan.String(), "TEMP B-TREE") {
			t.Errorf("%s\n  goes by %s  want %q and no sorting", query, plan.String(), want)
		}
	}
}

// TestFilesAreTheUsersAlone keeps specs, which may hold secrets, from other users
// of the machine, also in a folder that they may read.
func TestFilesAreTheUsersAlone(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "muster.db")
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	s, err := Open(t.Context(), path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	for _, name := range []string{path, path + "-wal", path + lockSuffix} {
		info, err := os.Stat(name)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v %v", name, info.Mode(), err)
		}
	}
}

// TestTheEngineNeverWaitsForReaders asks what a submission asks while all reading
// connections are taken.
func TestTheEngineNeverWaitsForReaders(t *testing.T) {
	t.Parallel()
	s, err := Open(t.Context(), filepath.Join(t.TempDir(), "muster.db"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	for range maxReaders {
		c := <-s.readers
		defer func() { s.readers <- c }()
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, found, err := s.Idempotent(ctx, "me", "key"); found || err != nil {
		t.Errorf("%v %v", found, err)
	}
}
