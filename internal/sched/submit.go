package sched

import (
	"cmp"
	"slices"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/dag"
	"github.com/muster-dev/muster/internal/sched/queue"
	"github.com/muster-dev/muster/internal/sched/report"
)

func (s *State) submit(now muster.Time, ev Submit) error {
	if ev.ID != s.nextJob {
		return muster.Errorf(muster.Internal, "job %s cannot be accepted: the next number is %s", ev.ID, s.nextJob)
	}
	spec := ev.Spec
	row := muster.Job{
		ID: ev.ID, UID: ev.UID, Name: spec.Name, Project: spec.Project, Priority: priority(spec), Labels: spec.Labels, Kind: spec.Kind(),
		CreatedAt: now, Owner: ev.Owner, Spec: spec,
	}
	reads := dag.New(spec).Referenced()
	groups := make([]muster.Group, len(spec.Tasks))
	first := 0
	for i := range spec.Tasks {
		t := &spec.Tasks[i]
		g := &groups[i]
		*g = muster.Group{
			Job: ev.ID, Index: i, Name: t.Name, First: first, Size: t.Size(), UnmaterializedState: muster.Waiting, UnmaterializedSince: now,
			Retained: reads[i] || t.Gang != nil,
		}
		if g.Size < 1 || t.Reserved() > muster.MaxTasks-first {
			return muster.Errorf(muster.InvalidSpec, "stage %q has %d tasks: a job has from 1 to %d", t.Name, t.Reserved(), muster.MaxTasks)
		}
		first += t.Reserved()
		old, reused := ev.Reused[i]
		if g.Resolved = old.Resolved; reused && t.DynamicArray() && old.Resolved != nil {
			g.Size = old.Resolved.Size()
		}
		switch {
		case reused && len(old.Tasks) != g.Size:
			return muster.Errorf(muster.Internal, "stage %q has %d tasks, and %d are reused", t.Name, g.Size, len(old.Tasks))
		case reused:
			g.UnmaterializedState, g.Materialized, g.FinishedAt = muster.Succeeded, g.Size, now
		case len(t.Needs) == 0:
			g.UnmaterializedState = muster.Queued
		}
		g.Counts[g.UnmaterializedState] = int64(g.Size)
		row.Counts[g.UnmaterializedState] += int64(g.Size)
	}
	j, err := newJob(row, groups)
	if err != nil {
		return err
	}
	s.nextJob++
	j.specDirty = true
	s.addJob(j)
	s.out.entered = s.out.entered.Add(j.row.Counts)
	j.stats.counts = j.stats.counts.Add(row.Counts)
	s.changedTotals(j.stats)
	s.changedJob(j)
	s.touchJob(j)
	for _, g := range j.groups {
		s.changedGroup(g)
		if old, reused := ev.Reused[g.row.Index]; reused {
			s.reuse(now, g, old.Tasks)
		} else if g.row.UnmaterializedState == muster.Queued {
			s.enqueueRest(g)
			s.armGroup(g)
		}
	}
	return nil
}

// reuse gives the tasks of a stage, which have succeeded, the results of other tasks.
func (s *State) reuse(now muster.Time, g *group, from []muster.Task) {
	for e := range from {
		o := &from[e]
		id := muster.TaskID{Job: g.row.Job, Num: g.row.First + e}
		t := &task{group: g, row: muster.Task{
			ID: id, Job: id.Job, Index: id.Num, Group: g.row.Index, Name: g.row.Name, Kind: g.spec().Kind, Element: g.spec().Element(e),
			State: muster.Succeeded, ExitCode: o.ExitCode, Metrics: o.Metrics, Result: o.Result, Artifacts: o.Artifacts,
			Origin: cmp.Or(o.Origin, o.ID), CreatedAt: now, FinishedAt: now,
		}}
		if g.row.Retained {
			g.attach(t)
		}
		s.changedTask(t)
	}
	s.touchGroup(g)
}

func priority(spec *muster.Spec) int {
	if spec.Priority == nil {
		return muster.DefaultPriority
	}
	return *spec.Priority
}

// addJob adds a job to the live ones.
func (s *State) addJob(j *job) {
	p := s.projects[j.row.Project]
	if p == nil {
		p = &queue.Project{Name: j.row.Project}
		s.projects[p.Name] = p
	}
	p.Jobs++
	j.project, j.stats = p, s.statsOf(p.Name)
	s.jobs[j.row.ID] = j
}

// retry queues ended tasks again. It first plans, stage by stage in dependency order,
// which tasks can be retried, and only then changes anything.
func (s *State) retry(now muster.Time, ev Retry) error {
	j := s.jobs[ev.Job.ID]
	if j == nil {
		var err error
		if j, err = s.reviveJob(ev); err != nil {
			return err
		}
	}
	plans, n, err := j.planRetry(ev)
	if err != nil {
		return err
	}
	if n == 0 {
		return muster.Errorf(muster.Conflict, "nothing to retry in job %s: only ended tasks that did not succeed are retried, "+
			"and skipped ones only together with the tasks that they need", j.row.ID)
	}
	if s.jobs[j.row.ID] == nil {
		s.addJob(j)
	}
	for _, g := range j.order {
		s.retryGroup(now, g, &plans[g.row.Index])
	}
	s.changedJob(j)
	s.touchJob(j)
	return nil
}

// reviveJob restores an ended job to memory, with those tasks that a live job keeps.
func (s *State) reviveJob(ev Retry) (*job, error) {
	id := ev.Job.ID
	if id < 1 || id >= s.nextJob {
		return nil, muster.Errorf(muster.NotFound, "there is no job %s", id)
	}
	if slices.ContainsFunc(s.out.jobs, func(j *job) bool { return j.row.ID == id }) {
		return nil, muster.Errorf(muster.Unavailable, "job %s has only just ended: try again", id)
	}
	j, err := newJob(ev.Job, ev.Groups)
	if err != nil {
		return nil, err
	}
	for _, rows := range [][]muster.Task{ev.Ended, ev.Kept} {
		for i := range rows {
			row := &rows[i]
			g := j.group(row.ID.Num)
			if g == nil || row.Synthesized {
				continue
			}
			if e := row.ID.Num - g.row.First; g.tasks[e] == nil && (g.row.Retained || e >= g.row.Materialized) {
				g.attach(&task{row: *row})
			}
		}
	}
	return j, nil
}

// retryGroup carries out the plan for one stage. A stage with needs becomes waiting
// first, and is queued at once if they are met.
func (s *State) retryGroup(now muster.Time, g *group, p *retryPlan) {
	to := muster.Queued
	if len(g.needs) > 0 {
		to = muster.Waiting
	}
	for i := range p.rows {
		row := &p.rows[i]
		e := row.ID.Num - g.row.First
		t := g.tasks[e]
		switch {
		case t != nil:
		case e >= g.row.Materialized:
			t = s.materialize(g, e)
			g.tasks[e] = t // materialize drops a final task that the cursor has passed
		default:
			t = &task{row: *row}
			g.attach(t)
		}
		if past, ok := report.LastAttempt(&t.row); ok {
			s.out.attempts = append(s.out.attempts, past)
		}
		report.ClearExecution(&t.row)
		r := &t.row
		r.Reason, r.Message, r.Retries, r.Crashes, r.QueuedAt, r.Cache = muster.NoReason, "", 0, 0, 0, nil
		t.alone = false
		if to == muster.Queued {
			r.QueuedAt = now
		}
		s.setState(now, t, to)
		if to == muster.Queued {
			s.enqueue(t)
		}
	}
	if p.unmaterialized {
		s.transitionRest(now, g, to, muster.NoReason, "")
	}
	if g.gang() {
		s.enqueueGang(now, g)
	}
	if to == muster.Waiting && p.size(g) > 0 {
		s.advanceStage(now, g)
	}
}
