package simtest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/dag"
	"github.com/muster-dev/muster/internal/sched"
)

// conditions are the expressions of when that the simulation draws: with %s the name of a stage that the stage needs, and what they are
// worth for its tasks, which have all succeeded.
var conditions = []struct {
	text  string
	array bool // for a stage that is an array
	value func(tasks []muster.Task) verdict
}{
	{"${%s.result.attempt} == 1", false, func(tasks []muster.Task) verdict { return runsIf(attemptOf(tasks[0]) == 1) }},
	{"${%s.exit_code} + ${%[1]s.result.attempt} > 1", false, func(tasks []muster.Task) verdict { return runsIf(*tasks[0].ExitCode+attemptOf(tasks[0]) > 1) }},
	{"max(${%s.*.result.attempt}) < 2", true, func(tasks []muster.Task) verdict {
		return runsIf(!slices.ContainsFunc(tasks, func(t muster.Task) bool { return attemptOf(t) >= 2 }))
	}},
	{"len(${%s.*.result.attempt}) > 9", true, func(tasks []muster.Task) verdict { return runsIf(len(tasks) > 9) }},
	{"${%s.result.nothing} > 0", false, func([]muster.Task) verdict { return fails }},
}

// attemptOf returns the attempt in a task's result: see resultOf.
func attemptOf(t muster.Task) (n int) {
	if _, err := fmt.Sscanf(string(t.Result), `{"attempt":%d,`, &n); err != nil {
		panic(fmt.Sprintf("task %s has the result %q", t.ID, t.Result))
	}
	return n
}

// verdict says what must become of the waiting tasks of a stage.
type verdict string

const (
	waits verdict = "wait"
	runs  verdict = "run"
	skips verdict = "be skipped"
	fails verdict = "fail"
)

func runsIf(met bool) verdict {
	if met {
		return runs
	}
	return skips
}

// setPolicies draws when a stage runs and how many of its tasks run at once.
func (w *simulation) setPolicies(s *muster.Spec, t *muster.TaskSpec) {
	if i := w.rng.IntN(len(s.Tasks) + 1); t.Gang == nil && i < len(s.Tasks) && slices.Contains(t.Needs, s.Tasks[i].Name) && !s.Tasks[i].HasElements() && w.rng.IntN(2) == 0 {
		array, err := muster.ParseArray("${" + s.Tasks[i].Name + ".result." + []string{"attempt", "list"}[w.rng.IntN(2)] + "}")
		if err != nil {
			panic(err)
		}
		t.Array, t.Inputs = &array, nil
	}
	if t.Array != nil && w.rng.IntN(2) == 0 {
		t.Array.Limit = 1 + w.rng.IntN(4)
	}
	if len(t.Needs) == 0 {
		return
	}
	switch w.rng.IntN(6) {
	case 0:
		t.When = muster.WhenFailed
	case 1:
		t.When = muster.WhenAlways
	case 2, 3:
		c := conditions[w.rng.IntN(len(conditions))]
		i := slices.IndexFunc(s.Tasks, func(n muster.TaskSpec) bool {
			return slices.Contains(t.Needs, n.Name) && n.Gang == nil && (n.Array != nil) == c.array
		})
		if i >= 0 {
			t.When = fmt.Sprintf(c.text, s.Tasks[i].Name)
		}
	}
}

// commit commits rows, and checks what they decided about stages with needs, jobs that stop after failures, and limits of arrays.
func (w *simulation) commit(rows muster.Rows, retried []muster.JobID) error {
	before := map[groupKey]muster.Group{}
	for _, g := range rows.Groups {
		before[groupKey{g.Job, g.Index}] = w.disk.groups[groupKey{g.Job, g.Index}]
	}
	failed := map[muster.JobID]int64{}
	for _, j := range rows.Jobs {
		c := w.disk.jobs[j.ID].Counts
		failed[j.ID] = c[muster.Failed] + c[muster.TimedOut]
	}
	w.disk.commit(rows)
	if err := w.commitCache(rows); err != nil {
		return err
	}
	for _, id := range retried {
		delete(w.stopped, id)
	}
	for _, j := range rows.Jobs {
		if err := w.checkStopped(j.ID, failed[j.ID], slices.Contains(retried, j.ID)); err != nil {
			return err
		}
	}
	for _, t := range rows.Tasks {
		if err := w.checkReused(t); err != nil {
			return err
		}
	}
	for _, g := range rows.Groups {
		if err := w.checkLimit(g); err != nil {
			return err
		}
		if err := w.checkDecision(before, g); err != nil {
			return err
		}
	}
	return nil
}

// checkStopped checks that a job in which too many tasks have failed has no task left that may start, except in stages that run after failures.
func (w *simulation) checkStopped(id muster.JobID, failedBefore int64, retried bool) error {
	j := w.disk.jobs[id]
	failed := j.Counts[muster.Failed] + j.Counts[muster.TimedOut]
	if j.Spec.OnFailure == muster.OnFailureStop && failed > int64(j.Spec.MaxFailures) && failed > failedBefore && !retried && !w.stopped[id] {
		w.stopped[id] = true
		w.stats.stopped++
	}
	if !w.stopped[id] {
		return nil
	}
	for _, g := range w.disk.groupsOf(id) {
		if n := g.Counts[muster.Waiting] + g.Counts[muster.Queued] + g.Counts[muster.Assigned] + g.Counts[muster.Running]; n > 0 && !j.Spec.Tasks[g.Index].RunsAfterFailure() {
			return fmt.Errorf("%d tasks of job %d failed, at most %d may, and %d tasks of %s are not stopped: %v", failed, id, j.Spec.MaxFailures, n, g.Name, g.Counts)
		}
	}
	return nil
}

// checkLimit checks that not more tasks of an array run at once than its limit allows.
func (w *simulation) checkLimit(g muster.Group) error {
	a := w.disk.jobs[g.Job].Spec.Tasks[g.Index].Array
	if a == nil || a.Limit == 0 {
		return nil
	}
	n := 0
	for e := range g.Size {
		if w.disk.stateOf(muster.TaskID{Job: g.Job, Num: g.First + e}).HoldsResources() {
			n++
		}
	}
	if n > a.Limit {
		return fmt.Errorf("%d tasks of the array %s of job %d run at once, and its limit is %d", n, g.Name, g.Job, a.Limit)
	}
	if n == a.Limit && g.Counts[muster.Queued] > 0 {
		w.stats.limited++
	}
	return nil
}

// checkDecision compares what became of the waiting tasks of a stage with what its needs and its condition demand.
func (w *simulation) checkDecision(before map[groupKey]muster.Group, g muster.Group) error {
	needs := w.disk.jobs[g.Job].Spec.Tasks[g.Index].Needs
	was := before[groupKey{g.Job, g.Index}]
	if was.Size == 0 && len(needs) > 0 && g.Counts[muster.Succeeded] < int64(g.Size) { // new, and not reused
		was.Counts[muster.Waiting] = int64(g.Size)
	}
	if was.Counts[muster.Waiting] == 0 {
		return nil
	}
	want, final := w.decide(before, g)
	if !final {
		return nil
	}
	if size, dynamic := w.elements(g); dynamic && want == runs {
		switch {
		case size == 0:
			want = skips
		case size < 0:
			want = fails
		case g.Counts[muster.Queued]+g.Counts[muster.Assigned]+g.Counts[muster.Running] > 0 && g.Size != size:
			return fmt.Errorf("stage %s of job %d has %d tasks, and its array %s has %d elements", g.Name, g.Job, g.Size, w.disk.jobs[g.Job].Spec.Tasks[g.Index].Array, size)
		}
		w.stats.fannedOut++
	}
	started, skipped, left := active(g.Counts)-active(was.Counts), g.Counts[muster.Skipped]-was.Counts[muster.Skipped], g.Counts[muster.Waiting]
	wrong := started > 0 && want != runs || skipped > 0 && want != skips || left > 0 && want != waits ||
		want == fails && g.Counts[muster.Failed]+g.Counts[muster.Cancelled] == 0
	if wrong {
		return fmt.Errorf("the tasks of %s of job %d must %s (when: %q, needs %v), but %d start, %d are skipped and %d wait", g.Name, g.Job, want,
			w.disk.jobs[g.Job].Spec.Tasks[g.Index].When, needs, started, skipped, left)
	}
	if started > 0 {
		w.stats.met++
	}
	if skipped > 0 {
		w.stats.unmet++
	}
	return nil
}

func active(c muster.Counts) int64 {
	return c[muster.Queued] + c[muster.Assigned] + c[muster.Running] + c[muster.Cancelling]
}

// elements is a model of arrays that another stage determines: how many elements it has by now, -1 if it has no result.
func (w *simulation) elements(g muster.Group) (n int, dynamic bool) {
	t := &w.disk.jobs[g.Job].Spec.Tasks[g.Index]
	if !t.DynamicArray() {
		return 0, false
	}
	stage, field, _ := strings.Cut(t.Array.From, ".result.")
	groups := w.disk.groupsOf(g.Job)
	i := slices.IndexFunc(groups, func(n muster.Group) bool { return n.Name == stage })
	source := w.disk.tasks[muster.TaskID{Job: g.Job, Num: groups[i].First}]
	if len(source.Result) == 0 {
		return -1, true
	}
	if n = attemptOf(source); field == "list" {
		n = listLength(n)
	}
	return n, true
}

// decide is a model of when. It is not final if a stage that the decision depends on may have ended after it, in the same commit.
func (w *simulation) decide(before map[groupKey]muster.Group, g muster.Group) (v verdict, final bool) {
	spec, groups := w.disk.jobs[g.Job].Spec, w.disk.groupsOf(g.Job)
	t := &spec.Tasks[g.Index]
	ended, failed, late := true, false, false
	for i := range upstream(spec, g.Index) {
		n := groups[i]
		if slices.Contains(t.Needs, n.Name) {
			if !t.RunsAfterFailure() && n.Counts.Finished() > n.Counts[muster.Succeeded] {
				return skips, true
			}
			ended = ended && n.Counts.Finished() == int64(n.Size)
		} else if was, changed := before[groupKey{g.Job, i}]; n.Counts.Finished() < int64(n.Size) || changed && was.Counts.Finished() < int64(n.Size) {
			late = true
		}
		failed = failed || n.Counts[muster.Failed]+n.Counts[muster.TimedOut] > 0
	}
	switch {
	case !ended:
		return waits, true
	case t.When == muster.WhenFailed:
		return runsIf(failed), !late
	case t.WhenExpression() == "":
		return runs, true
	}
	for _, c := range conditions {
		for i, n := range groups {
			if t.When != fmt.Sprintf(c.text, n.Name) {
				continue
			}
			var tasks []muster.Task
			for e := range n.Size {
				tasks = append(tasks, w.disk.tasks[muster.TaskID{Job: g.Job, Num: groups[i].First + e}])
			}
			return c.value(tasks), true
		}
	}
	panic("unknown condition " + t.When)
}

// upstream returns the stages that a stage needs, directly or not: those of newSpec need only earlier ones.
func upstream(s *muster.Spec, stage int) map[int]bool {
	found := map[int]bool{}
	wanted := slices.Clone(s.Tasks[stage].Needs)
	for i := stage - 1; i >= 0; i-- {
		if slices.Contains(wanted, s.Tasks[i].Name) {
			found[i] = true
			wanted = append(wanted, s.Tasks[i].Needs...)
		}
	}
	return found
}

// rerun makes ev the submission of a job that runs another one again from a random stage, if it may.
func (w *simulation) rerun(ev *sched.Submit, id muster.JobID) {
	job := w.disk.jobs[id]
	job.Groups = w.disk.groupsOf(id)
	from := w.rng.IntN(len(job.Groups))
	stages, err := dag.Reusable(&job, job.Spec, job.Groups[from].Name)
	if err != nil || len(stages) == 0 || w.disk.removed[id] {
		return
	}
	w.stats.reused++
	ev.Spec, ev.Reused = job.Spec, map[int]sched.Reused{}
	for _, i := range stages {
		old := sched.Reused{Resolved: job.Groups[i].Resolved}
		for e := range job.Groups[i].Size {
			old.Tasks = append(old.Tasks, w.disk.tasks[muster.TaskID{Job: id, Num: job.Groups[i].First + e}])
		}
		ev.Reused[i] = old
	}
}

// checkReused checks that a task that was not run has the result and the artifacts of the task that it names.
func (w *simulation) checkReused(t muster.Task) error {
	if t.Origin == (muster.TaskID{}) {
		return nil
	}
	o := w.disk.tasks[t.Origin]
	if o.State != muster.Succeeded || t.State != muster.Succeeded || t.Attempt != 0 && !t.Cached || string(o.Result) != string(t.Result) || !slices.Equal(o.Artifacts, t.Artifacts) {
		return fmt.Errorf("task %s is %s at attempt %d with the result %s, and %s, whose result it has, is %s with %s", t.ID, t.State, t.Attempt, t.Result, t.Origin, o.State, o.Result)
	}
	return nil
}
