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

// editDatabase changes a database file while the store is closed.
func editDatabase(t *testing.T, path string, f func(context.Context, *sql.DB) error) {
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
	if err := s.PutKeys(t.Context(), key); err != nil {
		t.Fatalf("what the newer schema added: %v", err)
	}
}

// TestOlderUsageIsSummed checks that the jobs of an older file have the sum of their attempts' usage.
func TestOlderUsageIsSummed(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "muster.db")
	editDatabase(t, path, func(ctx context.Context, db *sql.DB) error {
		if err := claimFile(ctx, db, path); err != nil {
			return err
		}
		p, err := migrator(db)
		if err != nil {
			return err
		}
		if _, err := p.UpTo(ctx, 23); err != nil {
			return err
		}
		const counts = "0, 0, 0, 0, 0, 2, 0, 0, 0, 0"
		_, err = db.ExecContext(ctx, `INSERT INTO job (id, name, project, state, priority, n_waiting, n_queued, n_assigned, n_running, n_cancelling, n_succeeded,
			n_failed, n_timed_out, n_cancelled, n_skipped, created_at, finished_at) VALUES (7, 'a', 'p', 4, 50, `+counts+`, 1, 9), (8, 'b', 'p', 4, 50, `+counts+`, 1, 9);
			INSERT INTO task (id, grp, name, kind, state, attempt, retried, crashes, finished_at, usage, grant) VALUES
			((7 << 24), 0, 'a', 'noop', 6, 1, 0, 0, 9, '{"wall_seconds":10,"cpu_seconds":4.5,"memory_peak":100,"cost":0.25,"energy_wh":2}', '{"gpus":["x","y"]}'),
			((7 << 24) + 1, 0, 'a', 'noop', 6, 2, 0, 0, 9, '{"wall_seconds":1,"cpu_seconds":0.5}', '{"slots":1}');
			INSERT INTO attempt (task, n, outcome, finished_at, usage) VALUES ((7 << 24) + 1, 1, 2, 5, '{"wall_seconds":2,"cpu_seconds":1,"memory_peak":300,"cost":0.5}')`)
		return err
	})
	s, err := Open(t.Context(), path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	for id, want := range map[muster.JobID]muster.Job{
		7: {Cost: 0.75, Usage: muster.JobUsage{EnergyWh: 2, CPUSeconds: 6, GPUSeconds: 20, WallSeconds: 13, MemoryPeak: 300, Attempts: 3}},
		8: {},
	} {
		if j, err := s.Job(t.Context(), id); err != nil || j.Cost != want.Cost || j.Usage != want.Usage {
			t.Errorf("job %s has cost %v and used %+v, %v; want %v, %+v", id, j.Cost, j.Usage, err, want.Cost, want.Usage)
		}
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
	editDatabase(t, path, func(ctx context.Context, db *sql.DB) error {
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
	for _, part := range []string{path, "version 99", "supports versions up to", "newer muster"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not contain %q", err, part)
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
	editDatabase(t, other, func(ctx context.Context, db *sql.DB) error {
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

// jobSearchSQL returns the statement of a search for jobs.
func jobSearchSQL(q store.JobQuery) string { return buildJobSearch(&q, 9).sql.String() }

// The searches use the intended indexes.
func TestSearchesUseTheirIndexes(t *testing.T) {
	t.Parallel()
	s, err := Open(t.Context(), filepath.Join(t.TempDir(), "muster.db"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	for query, want := range map[string]string{
		selectTasks:              "SEARCH task USING INTEGER PRIMARY KEY",
		selectLiveTasks:          "USING INDEX task_live",
		selectUnsuccessful:       "USING INDEX task_not_succeeded",
		selectUnfinished:         "USING INDEX task_live",
		selectLiveStates:         "USING INDEX task_live",
		selectUnsuccessfulStates: "USING COVERING INDEX task_not_succeeded",
		selectPrevious:           "USING INDEX job_name",
		selectFailed:             "USING INDEX job_failed",
		selectEndedTotal:         "USING COVERING INDEX job_ended",
		selectLogsTotal:          "USING COVERING INDEX job_logs",
		selectKeptTotal:          "USING INDEX job_kept",
		selectEndedJobs:          "USING INDEX job_ended",
		selectJobsWithLogs:       "USING INDEX job_logs",
		selectLate:               "USING COVERING INDEX late_report_at",
		selectRemovable:          "SEARCH job USING INTEGER PRIMARY KEY",
		selectSpecBlobs:          "USING INDEX job_spec_blobs",
		selectTaskBlobs:          "USING INDEX task_blobs",
		selectScheduleBlobs:      "SEARCH schedule USING INTEGER PRIMARY KEY",
		selectScheduleLast:       "USING INDEX schedule_last",
		selectScheduleNext:       "USING INDEX schedule_next",
		selectActiveRuns:         "SEARCH job USING INTEGER PRIMARY KEY",
		selectAttemptBlobs:       "USING INDEX attempt_blobs",
		selectLateBlobs:          "SEARCH late_report",
		selectWorkerBlobs:        "USING COVERING INDEX blob_grant_worker",
		selectLostGrants:         "USING COVERING INDEX blob_grant_worker",
		deleteTasks:              "SEARCH task USING INTEGER PRIMARY KEY",
		deleteAttempts:           "SEARCH attempt USING PRIMARY KEY",
		deleteContents:           "USING COVERING INDEX content_job",
		removals[1]:              "USING COVERING INDEX job_end_job",
		removals[6]:              "api_key_job",
		jobSearchSQL(store.JobQuery{States: []muster.JobState{muster.JobQueued}}):                    "job_live",
		jobSearchSQL(store.JobQuery{States: []muster.JobState{muster.JobFailed}, OldestFirst: true}): "job_failed",
		jobSearchSQL(store.JobQuery{Project: "p"}):                                                   "job_project",
		jobSearchSQL(store.JobQuery{Kind: "k", OldestFirst: true}):                                   "job_kind",
		jobSearchSQL(store.JobQuery{Owner: "o"}):                                                     "job_owner",
		jobSearchSQL(store.JobQuery{}):                                                               "INTEGER PRIMARY KEY",
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
			t.Errorf("%s\n  uses %s  want %q and no sorting", query, plan.String(), want)
		}
	}
}

// TestFilesArePrivate checks that other users of the machine cannot read specs, which may have secrets,
// also in a directory that they may read.
func TestFilesArePrivate(t *testing.T) {
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
	for _, name := range []string{path, path + "-wal", path + "-shm", path + lockSuffix} {
		info, err := os.Stat(name)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v %v", name, info.Mode(), err)
		}
	}
}

// TestTheEngineNeverWaitsForReaders looks up an idempotency key while all reading
// connections are in use.
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
	if _, found, err := s.FindIdempotencyKey(ctx, "me", "key"); found || err != nil {
		t.Errorf("%v %v", found, err)
	}
}
