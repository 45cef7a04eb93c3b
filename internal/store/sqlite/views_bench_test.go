package sqlite_test

import (
	"path/filepath"
	"strconv"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/store"
	"github.com/muster-dev/muster/internal/store/sqlite"
)

// openWithJobs opens a store with so many jobs: half of them of the project "default", the others of 50 projects, 1,000 names, 10 kinds and 100 owners; one in 50 failed, one in 1,000 is
// of the project "rare", and the oldest is alone of its name.
func openWithJobs(b *testing.B, n int) *sqlite.Store {
	b.Helper()
	s, err := sqlite.Open(b.Context(), filepath.Join(b.TempDir(), "muster.db"), sqlite.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.Close() })
	spec := &muster.Spec{Name: "bench", Tasks: []muster.TaskSpec{{Name: "bench", Kind: muster.KindNoop}}}
	var rows muster.Rows
	for i := range n {
		id := muster.JobID(i + 1)
		j := muster.Job{
			ID: id, UID: "j" + id.String(), Name: "train-" + strconv.Itoa(i%1000), Project: "project-" + strconv.Itoa(i%100), Kind: "kind-" + strconv.Itoa(i%10),
			Owner: "k" + strconv.Itoa(i*7%100), State: muster.JobSucceeded, Counts: muster.Counts{muster.Succeeded: 1}, Labels: map[string]string{"team": strconv.Itoa(i % 30)},
			CreatedAt: muster.Time(1_790_000_000_000 + i*1000), FinishedAt: muster.Time(1_790_000_000_000 + i*1000 + 500), Spec: spec,
		}
		switch {
		case i == 0:
			j.Name, j.Kind, j.Owner = "alone", "odd", "nobody"
		case i%2 == 0:
			j.Project = "default"
		case i%1000 == 7:
			j.Project = "rare"
		case i%50 == 3:
			j.State, j.Counts = muster.JobFailed, muster.Counts{muster.Failed: 1}
		}
		g := muster.Group{Job: id, Name: "bench", Size: 1, Materialized: 1, UnmaterializedState: muster.Queued, UnmaterializedSince: 1, Counts: j.Counts}
		rows.Jobs, rows.Groups = append(rows.Jobs, j), append(rows.Groups, g)
		if len(rows.Jobs) == 10_000 || i == n-1 {
			if err := s.Commit(b.Context(), &store.Batch{Rows: rows}); err != nil {
				b.Fatal(err)
			}
			rows = muster.Rows{}
		}
	}
	return s
}

// BenchmarkJobs lists pages of 100 out of 100,000 jobs.
func BenchmarkJobs(b *testing.B) {
	const n = 100_000
	s := openWithJobs(b, n)
	at := func(i int) muster.Time { return muster.Time(1_790_000_000_000 + i*1000) }
	for name, q := range map[string]store.JobQuery{
		"newest":          {},
		"oldest":          {OldestFirst: true},
		"project":         {Project: "project-5"},
		"default":         {Project: "default"},
		"rare-project":    {Project: "rare"},
		"no-project":      {Project: "none"},
		"name":            {Name: "train-77"},
		"rare-name":       {Name: "alone"},
		"no-name":         {Name: "nothing"},
		"kind":            {Kind: "kind-3"},
		"rare-kind":       {Kind: "odd"},
		"owner":           {Owner: "k7"},
		"rare-owner":      {Owner: "nobody"},
		"failed":          {States: []muster.JobState{muster.JobFailed}},
		"cancelled":       {States: []muster.JobState{muster.JobCancelled}},
		"running":         {States: []muster.JobState{muster.JobRunning}},
		"since-last-50":   {Since: at(n - 50)},
		"since-the-first": {Since: at(0)},
		"until-the-last":  {Until: at(n)},
		"until-first-50":  {Until: at(50)},
		"middle":          {Since: at(n / 2), Until: at(n/2 + 50)},
		"middle-oldest":   {Since: at(n / 2), Until: at(n/2 + 50), OldestFirst: true},
		"project-kind":    {Project: "project-5", Kind: "kind-5"},
		"project-name":    {Project: "project-5", Name: "train-105"},
		"label":           {Labels: map[string]string{"team": "7"}},
		"no-label":        {Labels: map[string]string{"team": "none"}},
	} {
		b.Run(name, func(b *testing.B) {
			q.Limit = 100
			rows := 0
			for b.Loop() {
				jobs, _, err := s.Jobs(b.Context(), q)
				if err != nil {
					b.Fatal(err)
				}
				rows = len(jobs)
			}
			b.ReportMetric(float64(rows), "rows")
		})
	}
	b.Run("previous", func(b *testing.B) {
		for b.Loop() {
			if j, err := s.PreviousJob(b.Context(), 50_000); err != nil || j.ID != 49_000 {
				b.Fatal(j.ID, err)
			}
		}
	})
	b.Run("failing", func(b *testing.B) {
		for b.Loop() {
			if _, err := s.FailingNames(b.Context(), 3); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("load", func(b *testing.B) {
		for b.Loop() {
			if snap, err := s.Load(b.Context()); err != nil || len(snap.Totals) != 53 {
				b.Fatal(len(snap.Totals), err)
			}
		}
	})
}

// BenchmarkStates reads the states of a job of 1,000,000 tasks with rows: all but 128,000 that run have succeeded; or all have failed.
func BenchmarkStates(b *testing.B) {
	const size, running = 1_000_000, 128_000
	s, err := sqlite.Open(b.Context(), filepath.Join(b.TempDir(), "muster.db"), sqlite.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	for id, rest := range map[muster.JobID]muster.TaskState{1: muster.Succeeded, 2: muster.Failed} {
		g := muster.Group{Job: id, Name: "bench", Size: size, Materialized: size, UnmaterializedState: muster.Queued, UnmaterializedSince: 1}
		g.Counts[rest] += size - running
		if rest == muster.Succeeded {
			g.Counts[muster.Running] = running
		} else {
			g.Counts[rest] += running
		}
		j := muster.Job{
			ID: id, Name: "bench", Project: "default", State: g.Counts.State(), CreatedAt: 1, Counts: g.Counts,
			Spec: &muster.Spec{Tasks: []muster.TaskSpec{{Name: "bench", Kind: muster.KindNoop}}},
		}
		if j.State.Final() {
			j.FinishedAt = 2
		}
		rows := muster.Rows{Jobs: []muster.Job{j}, Groups: []muster.Group{g}}
		for num := range size {
			t := muster.Task{
				ID: muster.TaskID{Job: id, Num: num}, Job: id, Index: num, Name: "bench", Kind: muster.KindNoop, Element: strconv.Itoa(num),
				State: rest, Worker: "w-0123456789abcdef", Attempt: 1, FinishedAt: 2, Grant: &muster.Grant{Slots: 1}, Usage: &muster.Usage{WallSeconds: 0.004},
			}
			if rest == muster.Succeeded && num%7 == 0 && num/7 < running {
				t.State, t.FinishedAt = muster.Running, 0
			}
			rows.Tasks = append(rows.Tasks, t)
			if len(rows.Tasks) == 50_000 {
				if err := s.Commit(b.Context(), &store.Batch{Rows: rows}); err != nil {
					b.Fatal(err)
				}
				rows = muster.Rows{}
			}
		}
	}
	all := store.Span{Last: muster.MaxTasks}
	for name, id := range map[string]muster.JobID{"running": 1, "failed": 2} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				_, groups, err := s.TaskStates(b.Context(), id, all)
				if err != nil || len(groups[0].States) != size {
					b.Fatal(err)
				}
			}
		})
	}
}
