package sqlite

import (
	"context"
	"database/sql"
	"path/filepath"
	"strconv"
	"testing"
)

// Files of every version of the schema are updated, with their rows, and the result passes the checks of SQLite.
func TestEveryVersionIsMigrated(t *testing.T) {
	t.Parallel()
	newest, err := newestSchema()
	if err != nil {
		t.Fatal(err)
	}
	if err := registerVFS(); err != nil {
		t.Fatal(err)
	}
	for version := int64(1); version <= newest; version++ {
		t.Run(strconv.FormatInt(version, 10), func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "muster.db")
			writeOldFile(t, path, version)
			s, err := Open(t.Context(), path, Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = s.Close() }()
			workers, err := s.Workers(t.Context())
			if err != nil || len(workers) != 1 || workers[0].Name != "old" {
				t.Fatalf("workers: %v, %v", workers, err)
			}
			copied := filepath.Join(t.TempDir(), "copy.db")
			if _, err := s.Snapshot(t.Context(), copied); err != nil {
				t.Fatal(err)
			}
			if info, err := Verify(t.Context(), copied); err != nil || info.Schema != newest {
				t.Errorf("the updated file is of version %d, %v; want %d", info.Schema, err, newest)
			}
		})
	}
}

// writeOldFile writes a database of a version of the schema, with a worker from the first version on.
func writeOldFile(t *testing.T, path string, version int64) {
	t.Helper()
	editDatabase(t, path, func(ctx context.Context, db *sql.DB) error {
		if err := claimFile(ctx, db, path); err != nil {
			return err
		}
		p, err := migrator(db)
		if err != nil {
			return err
		}
		if _, err := p.UpTo(ctx, 1); err != nil {
			return err
		}
		if _, err := db.ExecContext(ctx, `INSERT INTO worker (id, name, state, price, resources, paused, draining) VALUES ('w1', 'old', 'active', 0, '{}', 0, 0)`); err != nil {
			return err
		}
		_, err = p.UpTo(ctx, version)
		return err
	})
}
