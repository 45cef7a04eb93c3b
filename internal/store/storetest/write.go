package storetest

import (
	"cmp"
	"context"
	"slices"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/store"
	"pgregory.net/rapid"
)

func roundTrip(t *testing.T, f *fixture) {
	t.Helper()
	next := muster.JobID(0)
	rapid.Check(t, func(rt *rapid.T) {
		next++
		j, g := drawJob(rt, next, 5)
		j.Counts = g.Counts
		w := drawWorker(rt, muster.WorkerID("w"+j.ID.String()))
		f.mustCommit(t, muster.Rows{Jobs: []muster.Job{j}, Groups: []muster.Group{g}, Workers: []muster.Worker{w}})
		spec := j.Spec
		j.Spec = nil // is written once

		rows := map[int]muster.Task{}
		g.Materialized = 3
		var history []muster.Attempt
		for n := range rapid.IntRange(1, 4).Draw(rt, "commits") {
			var batch []muster.Task
			for num := range 3 {
				if n == 0 || rapid.Bool().Draw(rt, "changes") {
					rows[num] = drawTask(rt, store.SynthesizeTask(&j, &g, num))
					batch = append(batch, rows[num])
				}
			}
			all := []muster.Task{rows[0], rows[1], rows[2]}
			recount(&j, &g, all)
			a := drawAttempt(rt, muster.AttemptID{Task: muster.TaskID{Job: j.ID, Num: 4}, N: n + 1})
			history = append(history, a)
			late := muster.LateReport{Report: muster.Report{Attempt: a.ID, Outcome: muster.AttemptFailed, FinishedAt: 5}, Worker: a.Worker, At: 6}
			f.mustCommit(t, muster.Rows{Jobs: []muster.Job{j}, Groups: []muster.Group{g}, Tasks: batch, Attempts: []muster.Attempt{a}, LateReports: []muster.LateReport{late}})
			if rapid.IntRange(0, 9).Draw(rt, "restart") == 0 {
				f.reopen(t)
			}
		}
		got := must(f.Job(t.Context(), j.ID))(rt)
		want := j
		want.Spec, want.Groups = spec, []muster.Group{g}
		wantEqual(t, "job", want, got)
		for num, row := range rows {
			task := must(f.Task(t.Context(), row.ID))(rt)
			wantEqual(t, "task "+task.ID.String(), rows[num], task)
		}
		wantEqual(t, "attempts", history, must(f.Attempts(t.Context(), muster.TaskID{Job: j.ID, Num: 4}))(rt))
		all := must(f.Workers(t.Context()))(rt)
		i := slices.IndexFunc(all, func(o muster.Worker) bool { return o.ID == w.ID })
		wantEqual(t, "worker", w, all[i])
	})
}

func allOrNothing(t *testing.T, f *fixture) {
	t.Helper()
	j, g := job(1, 3)
	f.mustCommit(t, muster.Rows{Jobs: []muster.Job{j}, Groups: []muster.Group{g}})
	before := must(f.Load(t.Context()))(t)
	j2, g2 := job(2, 3)
	g.Materialized = 2
	good := row(&j, &g, 0, muster.Running)
	bad := row(&j, &g, 1, muster.Running)
	bad.Attempt = -1
	changed := g
	changed.Resolved = &muster.TaskSpec{Name: "resolved"}
	err := f.Commit(t.Context(), &store.Batch{Rows: muster.Rows{
		Jobs: []muster.Job{j2}, Groups: []muster.Group{changed, g2}, Tasks: []muster.Task{good, bad},
		Workers: []muster.Worker{{ID: "w1", Name: "w1", State: muster.WorkerActive}},
	}, IdempotencyKeys: []store.IdempotencyKey{{Key: "k", Owner: "o", Digest: "d", Job: 2, At: 1}}})
	if err == nil {
		t.Fatal("a row with a negative attempt was accepted")
	}
	wantEqual(t, "the snapshot before", before, must(f.Load(t.Context()))(t))
	if _, found, err := f.FindIdempotencyKey(t.Context(), "o", "k"); found || err != nil {
		t.Fatalf("the key of the refused batch: %v, %v", found, err)
	}
	// The same rows without the bad one: a cache must not contain the refused batch.
	bad.Attempt = 1
	g.Resolved = changed.Resolved
	recount(&j, &g, []muster.Task{good, bad})
	j.Spec = nil
	f.mustCommit(t, muster.Rows{Jobs: []muster.Job{j, j2}, Groups: []muster.Group{g, g2}, Tasks: []muster.Task{good, bad}})
	snap := must(f.Load(t.Context()))(t)
	wantEqual(t, "tasks", []muster.Task{good, bad}, snap.Tasks)
	wantEqual(t, "groups", []muster.Group{g, g2}, snap.Groups)
}

func invariants(t *testing.T, f *fixture) {
	t.Helper()
	j, g := job(1, 2)
	f.mustCommit(t, muster.Rows{Jobs: []muster.Job{j}, Groups: []muster.Group{g}})
	g.Materialized = 1
	running, done := row(&j, &g, 0, muster.Running), row(&j, &g, 0, muster.Succeeded)
	task := func(from muster.Task, change func(*muster.Task)) muster.Rows {
		change(&from)
		return muster.Rows{Tasks: []muster.Task{from}}
	}
	broken := map[string]muster.Rows{
		"an unknown state":               task(running, func(t *muster.Task) { t.State = 0 }),
		"a running task without worker":  task(running, func(t *muster.Task) { t.Worker = "" }),
		"a running task without attempt": task(running, func(t *muster.Task) { t.Attempt = 0 }),
		"an end without a time":          task(done, func(t *muster.Task) { t.FinishedAt = 0 }),
		"a time without an end":          task(running, func(t *muster.Task) { t.FinishedAt = 5 }),
		"a checkpoint without a hash":    task(running, func(t *muster.Task) { t.Checkpoint = "ckpt" }),
		"negative retries":               task(running, func(t *muster.Task) { t.Retries = -1 }),
		"progress over 1": task(running, func(t *muster.Task) {
			p := 1.5
			t.Progress = &p
		}),
		"a group of an unknown job": {Groups: []muster.Group{{Job: 9, Size: 1, UnmaterializedState: muster.Queued, Counts: muster.Counts{muster.Queued: 1}}}},
		"counts that do not add up": {Groups: []muster.Group{{
			Job: 1, Name: "stage", Size: 2, UnmaterializedState: muster.Queued, Counts: muster.Counts{muster.Queued: 1},
		}}},
		"an ended job with queued tasks": {Jobs: []muster.Job{{
			ID: 1, Name: "job", Project: "default", State: muster.JobSucceeded, FinishedAt: 9, Counts: g.Counts,
		}}},
		"an unknown job state": {Jobs: []muster.Job{{ID: 1, Name: "job", Project: "default", State: "?", Counts: g.Counts}}},
		"an attempt without outcome": {Attempts: []muster.Attempt{{
			ID: muster.AttemptID{Task: running.ID, N: 1}, FinishedAt: 5,
		}}},
		"an unknown worker state":        {Workers: []muster.Worker{{ID: "w1", Name: "w1", State: "?"}}},
		"a deadline of an active worker": {Workers: []muster.Worker{{ID: "w1", Name: "w1", State: muster.WorkerActive, Deadline: 9}}},
	}
	for name, rows := range broken {
		if err := f.Commit(t.Context(), &store.Batch{Rows: rows}); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
	// The same when the row exists.
	f.mustCommit(t, muster.Rows{Tasks: []muster.Task{running}})
	for name, rows := range broken {
		if err := f.Commit(t.Context(), &store.Batch{Rows: rows}); err == nil {
			t.Errorf("%s replaced a good row", name)
		}
	}
}

func cancelled(t *testing.T, f *fixture) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	j, g := job(1, 1)
	err := f.Commit(ctx, &store.Batch{Rows: muster.Rows{Jobs: []muster.Job{j}, Groups: []muster.Group{g}}})
	wantCode(t, "commit", err, muster.Unavailable)
	_, err = f.Job(t.Context(), 1)
	wantCode(t, "the job of the cancelled commit", err, muster.NotFound)
	f.mustCommit(t, muster.Rows{Jobs: []muster.Job{j}, Groups: []muster.Group{g}})
}

func load(t *testing.T, f *fixture) {
	t.Helper()
	want := muster.Snapshot{Totals: map[string]muster.Counts{}}
	mixed := []muster.TaskState{muster.Succeeded, muster.Running, muster.Failed, muster.Queued, muster.Skipped, muster.Waiting}
	for id, retained := range map[muster.JobID]bool{1: false, 2: true, 3: true} {
		j, g := job(id, 20)
		g.Materialized, g.Retained = len(mixed), retained
		var rows []muster.Task
		for i, num := range []int{0, 1, 2, 3, 4, 5, 10, 12, 14, 16, 17, 19} { // before and after Materialized
			st := mixed[i%len(mixed)]
			if id == 3 {
				st, g.UnmaterializedState = muster.Succeeded, muster.Succeeded
			}
			rows = append(rows, row(&j, &g, num, st))
		}
		recount(&j, &g, rows)
		want.Totals[j.Project] = want.Totals[j.Project].Add(j.Counts)
		total := muster.ProjectTotal{Project: j.Project, Counts: want.Totals[j.Project]}
		f.mustCommit(t, muster.Rows{Jobs: []muster.Job{j}, Groups: []muster.Group{g}, Tasks: rows, Totals: []muster.ProjectTotal{total}})
		if j.State.Final() {
			continue
		}
		want.Jobs = append(want.Jobs, j)
		want.Groups = append(want.Groups, g)
		for _, r := range rows {
			if !r.State.Final() || g.Retained || r.Index >= g.Materialized {
				want.Tasks = append(want.Tasks, r)
			}
		}
	}
	slices.SortFunc(want.Jobs, func(a, b muster.Job) int { return cmp.Compare(a.ID, b.ID) })
	slices.SortFunc(want.Groups, func(a, b muster.Group) int { return cmp.Compare(a.Job, b.Job) })
	byID := func(a, b muster.Task) int { return cmp.Or(cmp.Compare(a.Job, b.Job), cmp.Compare(a.Index, b.Index)) }
	slices.SortFunc(want.Tasks, byID)
	w := muster.Worker{ID: "w1", Name: "w1", State: muster.WorkerGone, Paused: true}
	f.mustCommit(t, muster.Rows{Workers: []muster.Worker{w}})
	want.NextJob, want.Workers = 4, []muster.Worker{w}
	for range 2 {
		got := must(f.Load(t.Context()))(t)
		slices.SortFunc(got.Tasks, byID)
		wantEqual(t, "snapshot", want, got)
		f.reopen(t)
	}
}

func resolved(t *testing.T, f *fixture) {
	t.Helper()
	j, g := job(1, 1)
	f.mustCommit(t, muster.Rows{Jobs: []muster.Job{j}, Groups: []muster.Group{g}})
	one, two := &muster.TaskSpec{Name: "one"}, &muster.TaskSpec{Name: "two"}
	for i, spec := range []*muster.TaskSpec{nil, one, one, two, {Name: "two"}, nil, one, nil, nil, two} {
		g.Resolved = spec
		f.mustCommit(t, muster.Rows{Groups: []muster.Group{g}})
		got := must(f.Job(t.Context(), 1))(t)
		wantEqual(t, "group", []muster.Group{g}, got.Groups)
		if i%3 == 2 {
			f.reopen(t)
			snap := must(f.Load(t.Context()))(t)
			wantEqual(t, "loaded group", []muster.Group{g}, snap.Groups)
		}
	}
}

func nextJob(t *testing.T, f *fixture) {
	t.Helper()
	for _, id := range []muster.JobID{1, 2, 7} {
		j, g := job(id, 1)
		g.UnmaterializedState = muster.Succeeded
		recount(&j, &g, nil)
		f.mustCommit(t, muster.Rows{Jobs: []muster.Job{j}, Groups: []muster.Group{g}})
		snap := must(f.Load(t.Context()))(t)
		if snap.NextJob != id+1 {
			t.Fatalf("after job %d the next is %d", id, snap.NextJob)
		}
	}
}

func idempotency(t *testing.T, f *fixture) {
	t.Helper()
	j, g := job(1, 1)
	k := store.IdempotencyKey{Key: "key", Owner: "me", Digest: "d1", Job: 1, At: 5}
	f.mustCommit(t, muster.Rows{Jobs: []muster.Job{j}, Groups: []muster.Group{g}}, k)
	f.reopen(t)
	got, found, err := f.FindIdempotencyKey(t.Context(), "me", "key")
	if err != nil || !found {
		t.Fatalf("found %v, %v", found, err)
	}
	wantEqual(t, "key", k, got)
	if _, found, err := f.FindIdempotencyKey(t.Context(), "you", "key"); found || err != nil {
		t.Fatalf("another's key: %v, %v", found, err)
	}
	j2, g2 := job(2, 1)
	again := store.IdempotencyKey{Key: "key", Owner: "me", Digest: "d2", Job: 2, At: 6}
	err = f.Commit(t.Context(), &store.Batch{Rows: muster.Rows{Jobs: []muster.Job{j2}, Groups: []muster.Group{g2}}, IdempotencyKeys: []store.IdempotencyKey{again}})
	wantCode(t, "a taken key", err, muster.Conflict)
	_, err = f.Job(t.Context(), 2)
	wantCode(t, "the job of the taken key", err, muster.NotFound)
	again.Owner = "you"
	f.mustCommit(t, muster.Rows{Jobs: []muster.Job{j2}, Groups: []muster.Group{g2}}, again)

	// The first key has expired, the second has not.
	j3, g3 := job(3, 1)
	late := store.IdempotencyKey{Key: "key", Owner: "me", Digest: "d3", Job: 3, At: k.At.Add(store.IdempotencyTTL)}
	f.mustCommit(t, muster.Rows{Jobs: []muster.Job{j3}, Groups: []muster.Group{g3}}, late)
	for _, want := range []store.IdempotencyKey{late, again} {
		if got, _, err = f.FindIdempotencyKey(t.Context(), want.Owner, "key"); err != nil {
			t.Fatal(err)
		}
		wantEqual(t, "key", want, got)
	}
}
