package storetest

import (
	"slices"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/store"
	"pgregory.net/rapid"
)

// statesModel checks that TaskStates and Tasks agree.
func statesModel(t *testing.T, f *fixture) {
	t.Helper()
	id := muster.JobID(0)
	rapid.Check(t, func(rt *rapid.T) {
		id++
		j, groups, all := drawTasks(t, rt, f, id, []muster.TaskState{muster.Queued, muster.Waiting, muster.Cancelled, muster.Succeeded, muster.TimedOut})
		span := store.Span{First: rapid.IntRange(0, len(all)).Draw(rt, "first"), Last: rapid.IntRange(0, len(all)+5).Draw(rt, "last")}
		if rapid.Bool().Draw(rt, "all") {
			span = store.Span{Last: muster.MaxTasks}
		}
		tasks := []muster.Task{} // an empty span would mean all tasks
		if span.First <= span.Last {
			tasks = listAll(t, 1000, func(cursor string) ([]muster.Task, string, error) {
				return f.Tasks(t.Context(), store.TaskQuery{Job: id, Spans: []store.Span{span}, Limit: 1000, Cursor: cursor})
			})
		}
		got, list, err := f.TaskStates(t.Context(), id, span)
		noError(rt, err)
		j.Groups = groups
		wantEqual(t, "job", j, got)
		if len(list) != len(groups) {
			rt.Fatalf("%d lists of states for %d groups", len(list), len(groups))
		}
		n := 0
		for _, s := range list {
			for i, state := range s.States {
				if n >= len(tasks) || tasks[n].ID.Num != s.From+i || tasks[n].State != state {
					rt.Fatalf("task %d of the job is %s, the list has %v", s.From+i, state, tasks[min(n, len(tasks)-1)])
				}
				n++
			}
		}
		if n != len(tasks) {
			rt.Fatalf("%d states of %d tasks", n, len(tasks))
		}
	})
	_, _, err := f.TaskStates(t.Context(), id+1, store.Span{Last: 9})
	wantCode(t, "states of an unknown job", err, muster.NotFound)
}

// previous checks PreviousJob and FailingNames.
func previous(t *testing.T, f *fixture) {
	t.Helper()
	var all []muster.Job
	rapid.Check(t, func(rt *rapid.T) {
		j, g := job(muster.JobID(len(all)+1), 1)
		j.Name = rapid.SampledFrom([]string{"train", "test", ""}).Draw(rt, "name")
		j.Project = rapid.SampledFrom([]string{"default", "vision"}).Draw(rt, "project")
		g.UnmaterializedState = rapid.SampledFrom([]muster.TaskState{muster.Queued, muster.Succeeded, muster.Failed, muster.Failed, muster.TimedOut, muster.Cancelled}).Draw(rt, "rest")
		recount(&j, &g, nil)
		f.mustCommit(t, muster.Rows{Jobs: []muster.Job{j}, Groups: []muster.Group{g}})
		j.Spec = nil
		all = append(all, j)

		current := rapid.SampledFrom(all).Draw(rt, "of")
		got, err := f.PreviousJob(t.Context(), current.ID)
		i := slices.IndexFunc(all, func(o muster.Job) bool { return o.ID == current.ID }) - 1
		for i >= 0 && (all[i].Name != current.Name || all[i].Project != current.Project) {
			i--
		}
		if i < 0 {
			wantCode(t, "previous of the first", err, muster.NotFound)
		} else {
			noError(rt, err)
			wantEqual(t, "previous", all[i], got)
		}

		n := rapid.IntRange(1, 4).Draw(rt, "n")
		wantEqual(t, "failing", failing(all, n), must(f.FailingNames(t.Context(), n))(rt))
	})
	_, err := f.PreviousJob(t.Context(), muster.JobID(len(all)+1))
	wantCode(t, "previous of an unknown job", err, muster.NotFound)
}

// failing lists the names whose last n ended jobs failed, the newest job first.
func failing(all []muster.Job, n int) []store.FailingName {
	var list []store.FailingName
	failed := map[[2]string]int{}
	ended := map[[2]string]int{}
	last := map[[2]string]muster.Job{}
	for _, j := range slices.Backward(all) {
		key := [2]string{j.Project, j.Name}
		if !j.State.Final() || ended[key] == n {
			continue
		}
		if ended[key]++; ended[key] == 1 {
			last[key] = j
		}
		if j.State == muster.JobFailed || j.State == muster.JobTimedOut {
			failed[key]++
		}
	}
	for key, j := range last {
		if failed[key] == n {
			list = append(list, store.FailingName{Project: j.Project, Name: j.Name, Job: j.ID, FinishedAt: j.FinishedAt})
		}
	}
	slices.SortFunc(list, func(a, b store.FailingName) int { return int(b.Job - a.Job) })
	return list
}
