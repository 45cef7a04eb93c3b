package dtf

import (
	"context"
	"encoding/json"
	"net/url"
	"path/filepath"
	"sync"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/muster-dev/muster"
)

// storedResult is a row of the results file.
type storedResult struct {
	TaskID      string
	TaskType    string
	Config      json.RawMessage
	Status      string // completed, failed or cancelled
	Result      json.RawMessage
	Error       string
	Seconds     float64
	WorkerID    string
	Coordinator string
	Job         muster.JobID
	Ended       time.Time
}

// results is the file of --db-path: a SQLite database with one table, which duckdb can also open (docs/adr/0030-dtf-results-file.md). Its
// methods may be called concurrently.
type results struct {
	mu sync.Mutex
	db *sqlite3.Conn
}

const resultsSchema = `
PRAGMA journal_mode = DELETE;
PRAGMA synchronous = FULL;
CREATE TABLE IF NOT EXISTS task_results (
	task_id TEXT NOT NULL PRIMARY KEY,
	task_type TEXT NOT NULL,
	status TEXT NOT NULL,
	execution_time_seconds REAL NOT NULL,
	config TEXT NOT NULL,
	result TEXT,
	error TEXT,
	worker_id TEXT NOT NULL,
	coordinator TEXT NOT NULL,
	muster_job INTEGER NOT NULL,
	ended_at TEXT NOT NULL
);`

// openResults opens or creates the file. It refuses a file of DuckDB.
func openResults(ctx context.Context, path string) (*results, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, muster.Errorf(muster.Invalid, "--db-path: %w", err)
	}
	db, err := sqlite3.OpenContext(ctx, (&url.URL{Scheme: "file", OmitHost: true, Path: filepath.ToSlash(path)}).String())
	if err != nil {
		return nil, muster.Errorf(muster.Invalid, "--db-path: cannot open %s: %w", path, err)
	}
	if err = db.BusyTimeout(5 * time.Second); err == nil {
		err = db.Exec(resultsSchema)
	}
	if err != nil {
		_ = db.Close()
		return nil, muster.Errorf(muster.Invalid, "--db-path: %s is not an SQLite database; choose another file: %w", path, err)
	}
	return &results{db: db}, nil
}

func (r *results) close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.db.Close()
}

// put writes a result to disk. It replaces an earlier one of the same task.
func (r *results) put(s *storedResult) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	stmt, _, err := r.db.Prepare(`INSERT OR REPLACE INTO task_results VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`)
	if err != nil {
		return muster.Errorf(muster.Unavailable, "--db-path: %w", err)
	}
	defer func() { _ = stmt.Close() }()
	texts := map[int]string{
		1: s.TaskID, 2: s.TaskType, 3: s.Status, 5: string(s.Config), 6: string(s.Result), 7: s.Error, 8: s.WorkerID, 9: s.Coordinator,
		11: s.Ended.UTC().Format(time.RFC3339Nano),
	}
	for i, text := range texts {
		if (i == 6 || i == 7) && text == "" {
			continue // NULL
		}
		if err := stmt.BindText(i, text); err != nil {
			return muster.Errorf(muster.Internal, "--db-path: %w", err)
		}
	}
	if err := stmt.BindFloat(4, s.Seconds); err != nil {
		return muster.Errorf(muster.Internal, "--db-path: %w", err)
	}
	if err := stmt.BindInt64(10, int64(s.Job)); err != nil {
		return muster.Errorf(muster.Internal, "--db-path: %w", err)
	}
	if err := stmt.Exec(); err != nil {
		return muster.Errorf(muster.Unavailable, "--db-path: %w", err)
	}
	return nil
}
