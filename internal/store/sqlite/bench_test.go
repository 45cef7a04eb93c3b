package sqlite_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/store"
	"github.com/muster-dev/muster/internal/store/sqlite"
	"github.com/ncruces/go-sqlite3/driver"
)

// BenchmarkCommit writes all rows of tasks: a row is inserted when its task is
// assigned, and updated when it runs and when it has succeeded. A task is three
// rows in three commits; every commit also updates the job and the group, as the
// engine's do.
func BenchmarkCommit(b *testing.B) {
	for _, size := range []int{1, 64, 512} {
		b.Run(fmt.Sprintf("batch=%d", size), func(b *testing.B) { benchmarkCommit(b, size) })
	}
}

func benchmarkCommit(b *testing.B, size int) {
	b.Helper()
	s, err := sqlite.Open(b.Context(), filepath.Join(b.TempDir(), "muster.db"), sqlite.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	const total = 1 << 23
	job := muster.Job{ID: 1, Name: "bench", Project: "default", State: muster.JobRunning, CreatedAt: 1}
	group := muster.Group{Job: 1, Name: "bench", Size: total, UnmaterializedState: muster.Queued, UnmaterializedSince: 1}
	group.Counts[muster.Queued] = total
	job.Counts = group.Counts
	spec := &muster.TaskSpec{Name: "bench", Kind: muster.KindNoop}
	group.Resolved = spec
	job.Spec = &muster.Spec{Name: "bench", Tasks: []muster.TaskSpec{*spec}}
	commit := func(rows muster.Rows) {
		if err := s.Commit(b.Context(), &store.Batch{Rows: rows}); err != nil {
			b.Fatal(err)
		}
	}
	commit(muster.Rows{Jobs: []muster.Job{job}, Groups: []muster.Group{group}})
	job.Spec = nil

	tasks := make([]muster.Task, size)
	now := muster.Time(1_790_000_000_000)
	transition := func(from, to muster.TaskState) {
		group.Counts[from] -= int64(size)
		group.Counts[to] += int64(size)
		job.Counts = group.Counts
		for i := range tasks {
			tasks[i].State = to
		}
		commit(muster.Rows{Jobs: []muster.Job{job}, Groups: []muster.Group{group}, Tasks: tasks})
	}
	finished := 0
	b.ReportAllocs()
	for b.Loop() {
		for i := range tasks {
			num := group.Materialized + i
			tasks[i] = muster.Task{
				ID: muster.TaskID{Job: 1, Num: num}, Job: 1, Index: num, Name: "bench", Kind: muster.KindNoop, Element: "123456",
				Attempt: 1, Worker: "w-0123456789abcdef", CreatedAt: now, QueuedAt: now, AssignedAt: now,
				Grant: &muster.Grant{Slots: 1},
			}
		}
		group.Materialized += size
		transition(muster.Queued, muster.Assigned)
		for i := range tasks {
			tasks[i].StartedAt = now + 5
		}
		transition(muster.Assigned, muster.Running)
		for i := range tasks {
			tasks[i].FinishedAt = now + 9
			tasks[i].Usage = &muster.Usage{WallSeconds: 0.004}
		}
		transition(muster.Running, muster.Succeeded)
		finished += size
	}
	b.ReportMetric(float64(finished)/b.Elapsed().Seconds(), "lives/s")
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/3, "µs/commit")
}

// BenchmarkLoad starts from a job of 1,000,000 queued tasks without rows, 100,000
// that have ended, and 10,000 that run.
func BenchmarkLoad(b *testing.B) {
	s, err := sqlite.Open(b.Context(), filepath.Join(b.TempDir(), "muster.db"), sqlite.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	const ended, running, size = 100_000, 10_000, 1_110_000
	g := muster.Group{Job: 1, Name: "bench", Size: size, Materialized: ended + running, UnmaterializedState: muster.Queued, UnmaterializedSince: 1}
	g.Counts = muster.Counts{muster.Succeeded: ended, muster.Running: running, muster.Queued: size - ended - running}
	j := muster.Job{
		ID: 1, Name: "bench", Project: "default", State: muster.JobRunning, CreatedAt: 1, Counts: g.Counts,
		Spec: &muster.Spec{Tasks: []muster.TaskSpec{{Name: "bench", Kind: muster.KindNoop}}},
	}
	rows := muster.Rows{Jobs: []muster.Job{j}, Groups: []muster.Group{g}}
	for num := range ended + running {
		t := muster.Task{
			ID: muster.TaskID{Job: 1, Num: num}, Job: 1, Index: num, Name: "bench", Kind: muster.KindNoop,
			State: muster.Succeeded, Worker: "w", Attempt: 1, FinishedAt: 2, Grant: &muster.Grant{Slots: 1},
		}
		if num >= ended {
			t.State, t.FinishedAt = muster.Running, 0
		}
		rows.Tasks = append(rows.Tasks, t)
	}
	if err := s.Commit(b.Context(), &store.Batch{Rows: rows}); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		snap, err := s.Load(b.Context())
		if err != nil || len(snap.Tasks) != running {
			b.Fatalf("%d tasks, %v", len(snap.Tasks), err)
		}
	}
}

// BenchmarkHistory opens and loads a database with 1,000,000 ended jobs of three tasks and one that is live, which a start must not
// read, and then removes jobs: rows/s are those of the statements that a removal of one large job repeats, ms/step the longest time
// that the engine waits for one of them.
func BenchmarkHistory(b *testing.B) {
	const jobs, perJob, step = 1_000_000, 3, 500
	path := filepath.Join(b.TempDir(), "muster.db")
	open := func() *sqlite.Store {
		s, err := sqlite.Open(b.Context(), path, sqlite.Options{})
		if err != nil {
			b.Fatal(err)
		}
		return s
	}
	s := open()
	live := batch(jobs + 1)
	live.Totals = []muster.ProjectTotal{{Project: "default", Counts: muster.Counts{muster.Succeeded: jobs * perJob, muster.Running: 40}}}
	if err := errors.Join(s.Commit(b.Context(), live), s.Close()); err != nil {
		b.Fatal(err)
	}
	fillHistory(b, path, jobs, perJob)
	var load, held, longest time.Duration
	starts, rows := 0, 0
	next := muster.JobID(1)
	for b.Loop() {
		began := time.Now()
		s := open()
		snap, err := s.Load(b.Context())
		load += time.Since(began)
		if starts++; err != nil || len(snap.Jobs) != 1 || len(snap.Totals) != 1 {
			b.Fatalf("%d jobs, totals of %v, %v", len(snap.Jobs), snap.Totals, err)
		}
		var ids []muster.JobID
		for range 1_600 {
			ids = append(ids, next)
			next++
		}
		for list := range slices.Chunk(ids, 16) {
			began := time.Now()
			if err := s.Commit(b.Context(), &store.Batch{RemovedJobs: list, At: 1}); err != nil {
				b.Fatal(err)
			}
			longest = max(longest, time.Since(began))
		}
		for len(ids) > 0 {
			r, err := s.DeleteRemoved(b.Context(), ids, step)
			if err != nil {
				b.Fatal(err)
			}
			held, longest, rows, ids = held+r.Held, max(longest, r.Held), rows+r.Rows, ids[r.Jobs:]
		}
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(load.Seconds()/float64(starts), "start-s")
	b.ReportMetric(float64(rows)/held.Seconds(), "rows/s")
	b.ReportMetric(float64(longest.Microseconds())/1000, "ms/step")
}

// fillHistory adds ended jobs, which Commit would take a minute for.
func fillHistory(b *testing.B, path string, jobs, perJob int) {
	b.Helper()
	db, err := driver.Open(path)
	if err != nil {
		b.Fatal(err)
	}
	counts := fmt.Sprintf("0, 0, 0, 0, 0, %d, 0, 0, 0, 0", perJob)
	const numbers = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) "
	_, err = db.ExecContext(b.Context(), "PRAGMA foreign_keys = OFF; PRAGMA synchronous = OFF")
	if err == nil {
		_, err = db.ExecContext(b.Context(), numbers+`INSERT INTO job (id, name, project, state, priority, n_waiting, n_queued, n_assigned, n_running, n_cancelling, n_succeeded,
			n_failed, n_timed_out, n_cancelled, n_skipped, created_at, finished_at, log_bytes) SELECT i, 'job', 'default', 4, 50, `+counts+`, i, i, 5000 FROM n`, jobs)
	}
	if err == nil {
		_, err = db.ExecContext(b.Context(), numbers+`INSERT INTO job_spec (job, spec) SELECT i, '{"tasks":[{"name":"stage","kind":"noop"}]}' FROM n`, jobs)
	}
	if err == nil {
		_, err = db.ExecContext(b.Context(), numbers+`INSERT INTO task_group (job, idx, name, first, size, next, rest, n_waiting, n_queued, n_assigned, n_running, n_cancelling,
			n_succeeded, n_failed, n_timed_out, n_cancelled, n_skipped, kept) SELECT i, 0, 'stage', 0, `+fmt.Sprint(perJob, ", ", perJob, ", 2, ", counts)+", 0 FROM n", jobs)
	}
	if err == nil {
		_, err = db.ExecContext(b.Context(), numbers+fmt.Sprintf(`INSERT INTO task (id, grp, name, kind, state, attempt, retried, crashes, finished_at, usage)
			SELECT ((1 + (i - 1) / %d) << 24) + (i - 1) %% %d, 0, 'stage', 'noop', 6, 1, 0, 0, 5, '{"wall_seconds":0.004}' FROM n`, perJob, perJob), jobs*perJob)
	}
	if err := errors.Join(err, db.Close()); err != nil {
		b.Fatal(err)
	}
}
