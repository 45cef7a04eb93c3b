package sqlite_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/store"
	"github.com/muster-dev/muster/internal/store/sqlite"
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
