package storetest

import (
	"fmt"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/store"
)

func schedule(project, name string, next muster.Time) store.Schedule {
	return store.Schedule{
		Project: project, Name: name, Cron: "0 2 * * *", Timezone: "Europe/Berlin", Missed: "run-once", Overlap: "forbid", Owner: "k1", OwnerName: "ci", CreatedAt: 5, UpdatedAt: 5, Next: next,
		Spec: &muster.Spec{Project: project, Tasks: []muster.TaskSpec{{Kind: muster.KindNoop, Files: "sha256:" + hexOf("c")}}},
	}
}

// light is a schedule as lists have it.
func light(s store.Schedule) store.Schedule {
	s.Spec = nil
	return s
}

func schedules(t *testing.T, f *fixture) {
	t.Helper()
	if list := must(f.Schedules(t.Context(), ""))(t); len(list) > 0 {
		t.Errorf("at first: %v", list)
	}
	last := must(f.PutSchedule(t.Context(), schedule("vision", "a", 30), false))(t)
	nightly := must(f.PutSchedule(t.Context(), schedule("default", "nightly", 20), false))(t)
	if nightly.ID == last.ID {
		t.Errorf("two schedules have the number %d", last.ID)
	}
	f.reopen(t)
	wantEqual(t, "all", []store.Schedule{light(nightly), light(last)}, must(f.Schedules(t.Context(), ""))(t))
	wantEqual(t, "of a project", []store.Schedule{light(last)}, must(f.Schedules(t.Context(), "vision"))(t))
	wantEqual(t, "one", nightly, must(f.Schedule(t.Context(), "default", "nightly"))(t))

	if _, err := f.PutSchedule(t.Context(), schedule("default", "nightly", 90), false); muster.CodeOf(err) != muster.Conflict {
		t.Errorf("a second one with the name: %v", err)
	}
	noError(t, f.RecordRun(t.Context(), store.ScheduleRun{Schedule: nightly.ID, At: 20, Due: 20, Next: 40, DecidedAt: 21, Outcome: store.RunSkipped, Message: "missed"}))
	changed := schedule("default", "nightly", 0)
	changed.Cron, changed.Timezone, changed.Missed, changed.Overlap, changed.Owner, changed.UpdatedAt, changed.Paused = "@hourly", "", "skip", "allow", "k2", 9, true
	changed.CreatedAt = 9
	nightly = must(f.PutSchedule(t.Context(), changed, true))(t)
	changed.ID, changed.CreatedAt = nightly.ID, 5
	f.reopen(t)
	wantEqual(t, "replaced", changed, must(f.Schedule(t.Context(), "default", "nightly"))(t))
	if runs := must(f.ScheduleRuns(t.Context(), nightly.ID))(t); len(runs) != 1 || runs[0].Message != "missed" {
		t.Errorf("the runs of the replaced one: %+v", runs)
	}

	first, found, err := f.FirstSchedule(t.Context(), 1000)
	noError(t, err)
	wantEqual(t, "first", last, first)
	if !found {
		t.Error("no schedule has a next run")
	}
	noError(t, f.SetScheduleNext(t.Context(), nightly.ID, false, 25, 12))
	if first, _, err = f.FirstSchedule(t.Context(), 1000); err != nil || first.ID != nightly.ID || first.Paused || first.Next != 25 || first.UpdatedAt != 12 {
		t.Errorf("first: %+v, %v", first, err)
	}

	noError(t, f.DeleteSchedule(t.Context(), "default", "nightly"))
	for _, name := range []string{"nightly", "a"} { // a is of another project
		if err := f.DeleteSchedule(t.Context(), "default", name); muster.CodeOf(err) != muster.NotFound {
			t.Errorf("delete %s: %v", name, err)
		}
		if _, err := f.Schedule(t.Context(), "default", name); muster.CodeOf(err) != muster.NotFound {
			t.Errorf("show %s: %v", name, err)
		}
	}
	for n := range store.MaxProjectSchedules {
		must(f.PutSchedule(t.Context(), schedule("full", fmt.Sprintf("s%03d", n), 50), false))(t)
	}
	if _, err := f.PutSchedule(t.Context(), schedule("full", "more", 50), false); muster.CodeOf(err) != muster.Conflict {
		t.Errorf("one too many: %v", err)
	}
	must(f.PutSchedule(t.Context(), schedule("full", "s000", 51), true))(t)
}

func scheduleRuns(t *testing.T, f *fixture) {
	t.Helper()
	s := must(f.PutSchedule(t.Context(), schedule("default", "often", 10), false))(t)
	started := store.ScheduleRun{Schedule: s.ID, At: 10, Due: 10, Next: 20, DecidedAt: 11, Outcome: store.RunStarted, Job: 1}
	live := &store.Batch{ScheduleRuns: []store.ScheduleRun{started}, Rows: muster.Rows{
		Jobs:   []muster.Job{{ID: 1, Name: "j", Project: "default", State: muster.JobQueued, CreatedAt: 11, Spec: s.Spec}},
		Groups: []muster.Group{{Job: 1, Name: "j", Size: 1, UnmaterializedState: muster.Queued, UnmaterializedSince: 11}},
	}}
	live.Jobs[0].Counts[muster.Queued], live.Groups[0].Counts[muster.Queued] = 1, 1
	f.mustChange(t, live)
	f.reopen(t)
	started.N, started.Due, started.Next = 1, 0, 0
	wantEqual(t, "runs", []store.ScheduleRun{started}, must(f.ScheduleRuns(t.Context(), s.ID))(t))
	wantEqual(t, "active", []muster.JobID{1}, must(f.ActiveRuns(t.Context(), s.ID))(t))
	if now := must(f.Schedule(t.Context(), "default", "often"))(t); now.Next != 20 || now.Last != 10 {
		t.Errorf("after the run: %+v", now)
	}

	// A run that was decided before does not move the next one, nor does a manual one.
	noError(t, f.RecordRun(t.Context(), store.ScheduleRun{Schedule: s.ID, At: 10, Due: 10, Next: 99, DecidedAt: 12, Outcome: store.RunSkipped}))
	noError(t, f.RecordRun(t.Context(), store.ScheduleRun{Schedule: s.ID, At: 15, Due: 20, Next: 99, DecidedAt: 15, Outcome: store.RunRefused, Manual: true, Message: "no"}))
	if now := must(f.Schedule(t.Context(), "default", "often"))(t); now.Next != 20 || now.Last != 10 {
		t.Errorf("after runs that do not count: %+v", now)
	}
	if first, found, err := f.FirstSchedule(t.Context(), 9); err != nil || !found || first.ID != s.ID {
		t.Errorf("a run was decided after 9: %v, %v", first, err)
	}
	for n := range muster.Time(2 * store.MaxScheduleRuns) {
		noError(t, f.RecordRun(t.Context(), store.ScheduleRun{Schedule: s.ID, At: 20 + n, Due: 20 + n, Next: 21 + n, DecidedAt: 20 + n, Outcome: store.RunSkipped}))
	}
	runs := must(f.ScheduleRuns(t.Context(), s.ID))(t)
	if len(runs) != store.MaxScheduleRuns+1 || runs[0].N != 2*store.MaxScheduleRuns+3 || runs[store.MaxScheduleRuns].Job != 1 {
		t.Errorf("%d runs are kept, from %+v to %+v", len(runs), runs[0], runs[len(runs)-1])
	}

	page, key, done, err := f.ScheduleBlobs(t.Context(), 0, 5)
	noError(t, err)
	if len(page) != 1 || !done || key != s.ID || page[0].Project != "default" || len(page[0].Trees) != 1 || page[0].Trees[0] != hexOf("c") {
		t.Errorf("references: %+v, %d, %t", page, key, done)
	}
	noError(t, f.DeleteSchedule(t.Context(), "default", "often"))
	noError(t, f.RecordRun(t.Context(), store.ScheduleRun{Schedule: s.ID, At: 900, DecidedAt: 900, Outcome: store.RunSkipped}))
	if runs := must(f.ScheduleRuns(t.Context(), s.ID))(t); len(runs) > 0 {
		t.Errorf("runs of a deleted schedule: %+v", runs)
	}
	must(f.Job(t.Context(), 1))(t)

	noError(t, f.PutKeys(t.Context(), store.Key{ID: "k1", Name: "ci", Hash: hexOf("a"), Role: "submitter", CreatedAt: 1}))
	if k := must(f.KeyByID(t.Context(), "k1"))(t); k.Name != "ci" {
		t.Errorf("the key: %+v", k)
	}
	if _, err := f.KeyByID(t.Context(), "k2"); muster.CodeOf(err) != muster.NotFound {
		t.Errorf("another key: %v", err)
	}
}
