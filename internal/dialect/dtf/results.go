package dtf

import (
	"context"
	"database/sql"
	"encoding/json"
	"net/url"
	"path/filepath"
	"time"

	"github.com/ncruces/go-sqlite3/driver"

	"github.com/muster-dev/muster"
)

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
type results struct{ db *sql.DB }

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
	settings := url.Values{"_pragma": {"busy_timeout(5000)"}} // of each connection
	db, err := driver.Open((&url.URL{Scheme: "file", OmitHost: true, Path: filepath.ToSlash(path), RawQuery: settings.Encode()}).String())
	if err != nil {
		return nil, muster.Errorf(muster.Invalid, "--db-path: cannot open %s: %w", path, err)
	}
	if err := db.PingContext(ctx); err != nil {
		_ = db.Close()
		return nil, muster.Errorf(muster.Invalid, "--db-path: cannot open %s: %w", path, err)
	}
	if _, err := db.ExecContext(ctx, resultsSchema); err != nil {
		_ = db.Close()
		return nil, muster.Errorf(muster.Invalid, "--db-path: %s is not an SQLite database; choose another file: %w", path, err)
	}
	return &results{db: db}, nil
}

func (r *results) close() error {
	if r == nil {
		return nil
	}
	return r.db.Close()
}

// put writes a result to disk. It replaces an earlier one of the same task.
func (r *results) put(ctx context.Context, s *storedResult) error {
	_, err := r.db.ExecContext(ctx, `INSERT OR REPLACE INTO task_results VALUES (?, ?, ?, ?, ?, NULLIF(?, ''), NULLIF(?, ''), ?, ?, ?, ?)`,
		s.TaskID, s.TaskType, s.Status, s.Seconds, string(s.Config), string(s.Result), s.Error, s.WorkerID, s.Coordinator, int64(s.Job),
		s.Ended.UTC().Format(time.RFC3339Nano))
	if err != nil {
		return muster.Errorf(muster.Unavailable, "--db-path: %w", err)
	}
	return nil
}
