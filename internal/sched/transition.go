package sched

import (
	"fmt"

	"github.com/muster-dev/muster"
)

// transition moves n tasks of g from one state to another, and keeps all counts. Every
// state change goes through it. It panics on an illegal transition, which is a bug.
func (s *State) transition(now muster.Time, g *group, from, to muster.TaskState, n int) {
	if !from.CanBecome(to) {
		panic(fmt.Sprintf("sched: a task of job %s, stage %q, cannot become %s: it is %s", g.Row.Job, g.Row.Name, to, from))
	}
	g.Row.Counts[from] -= int64(n)
	g.Row.Counts[to] += int64(n)
	g.Job.Row.Counts[from] -= int64(n)
	g.Job.Row.Counts[to] += int64(n)
	s.out.entered[to] += int64(n)
	g.Job.Stats.RecordTransition(now, from, to, n)
	g.Row.FinishedAt = 0
	if to.Final() && g.Row.Counts.Finished() == int64(g.Row.Size) {
		g.Row.FinishedAt = now
	}
	s.changedGroup(g)
	s.changedJob(g.Job)
	s.touchJob(g.Job)
	if to.Final() && len(g.Dependents) > 0 {
		s.touchGroup(g)
	}
}

func (s *State) touchJob(j *job) {
	if !j.Touched {
		j.Touched = true
		s.touchedJobs = append(s.touchedJobs, j)
	}
}

func (s *State) touchGroup(g *group) {
	if !g.Touched {
		g.Touched = true
		s.touchedGroups = append(s.touchedGroups, g)
	}
}

// setState changes the state of one task that has a row, after all other changes to the
// row. A final task leaves memory, unless its group is retained.
func (s *State) setState(now muster.Time, t *task, to muster.TaskState) {
	s.transition(now, t.Group, t.Row.State, to, 1)
	t.Row.State = to
	s.changedTask(t)
	s.publishTask(now, t)
	if g := t.Group; to.Final() && !g.Row.Retained && t.Element() < g.Row.Materialized {
		delete(g.Tasks, t.Element())
	}
	s.armTask(t)
}

// transitionRest changes the state of all unmaterialized elements at once.
func (s *State) transitionRest(now muster.Time, g *group, to muster.TaskState, reason muster.Reason, message string) {
	n := g.Unmaterialized()
	if n == 0 {
		return
	}
	s.transition(now, g, g.Row.UnmaterializedState, to, n)
	g.Row.UnmaterializedState, g.Row.UnmaterializedSince, g.Row.Reason, g.Row.Message = to, now, reason, message
	if to == muster.Queued {
		s.enqueueRest(g)
	} else if g.Item.Queued() {
		s.queue.Remove(&g.Item)
	}
	s.armGroup(g)
}

// materialize gives an element a row of its own, in the state of the unmaterialized elements.
func (s *State) materialize(g *group, element int) *task {
	t := g.Materialize(element)
	if g.Item.Queued() {
		s.requeueRest(g)
	}
	s.changedGroup(g)
	s.changedTask(t)
	return t
}

// propagate handles the consequences of state changes: stages that became ready or
// never will, jobs whose state changed, jobs that ended.
func (s *State) propagate(now muster.Time) {
	for len(s.touchedGroups) > 0 {
		g := s.touchedGroups[0]
		s.touchedGroups = s.touchedGroups[1:]
		g.Touched = false
		for _, r := range g.Dependents {
			s.advanceStage(now, r)
		}
	}
	s.touchedGroups = nil
	for _, j := range s.touchedJobs {
		j.Touched = false
		if state := j.Row.Counts.State(); state != j.Row.State {
			if j.Row.State.Final() {
				j.Row.RetriedAt = now
			}
			j.Row.State = state
			j.Row.FinishedAt = 0
			if state.Final() {
				j.Row.FinishedAt = now
			}
			s.changedJob(j)
			s.publishJob(now, j)
		}
		if j.Row.State.Final() {
			s.out.jobsEnded = append(s.out.jobsEnded, JobEnded{
				Job: j.Row.ID, UID: j.Row.UID, Name: j.Row.Name, State: j.Row.State, CreatedAt: j.Row.CreatedAt, At: j.Row.FinishedAt,
			})
			s.removeJob(j)
		}
	}
	s.touchedJobs = s.touchedJobs[:0]
}

// removeJob removes an ended job from memory.
func (s *State) removeJob(j *job) {
	delete(s.jobs, j.Row.ID)
	delete(s.failing, j.Row.ID)
	j.Project.Jobs--
	if j.Project.Jobs == 0 {
		delete(s.projects, j.Project.Name)
	}
}

// advanceStage queues a waiting stage that became ready, or skips one that never will.
func (s *State) advanceStage(now muster.Time, g *group) {
	if g.Row.Counts[muster.Waiting] == 0 {
		return
	}
	all := true
	for _, n := range g.Needs {
		if n.Unsuccessful() > 0 {
			s.transitionWaiting(now, g, muster.Skipped, muster.NeedNotMet, fmt.Sprintf("stage %q, which it needs, did not succeed", n.Row.Name))
			return
		}
		all = all && n.Succeeded()
	}
	if !all {
		return
	}
	if reason, err := g.Resolve(); err != nil {
		s.transitionWaiting(now, g, muster.Failed, reason, err.Error())
		return
	}
	s.changedGroup(g)
	s.transitionWaiting(now, g, muster.Queued, muster.NoReason, "")
}

// transitionWaiting changes the state of all waiting tasks of a stage.
func (s *State) transitionWaiting(now muster.Time, g *group, to muster.TaskState, reason muster.Reason, message string) {
	if int64(g.Unmaterialized()) < g.Row.Counts[muster.Waiting] || g.Row.UnmaterializedState != muster.Waiting {
		for _, t := range g.SortedTasks() {
			if t.Row.State != muster.Waiting {
				continue
			}
			t.Row.Reason, t.Row.Message = reason, message
			if to == muster.Queued {
				t.Row.QueuedAt = now
			} else {
				t.Row.FinishedAt = now
			}
			s.setState(now, t, to)
			if to == muster.Queued {
				s.enqueue(t)
			}
		}
	}
	if g.Row.UnmaterializedState == muster.Waiting {
		s.transitionRest(now, g, to, reason, message)
	}
	if g.Gang() {
		s.enqueueGang(now, g)
	}
}
