package sched

import (
	"fmt"

	"github.com/muster-dev/muster"
)

// transition moves n tasks of g from one state to another, and keeps all counts. Every
// state change goes through it. It panics on an illegal transition, which is a bug.
func (s *State) transition(now muster.Time, g *group, from, to muster.TaskState, n int) {
	if !from.CanBecome(to) {
		panic(fmt.Sprintf("sched: a task of job %s, stage %q, cannot become %s: it is %s", g.row.Job, g.row.Name, to, from))
	}
	g.row.Counts[from] -= int64(n)
	g.row.Counts[to] += int64(n)
	g.job.row.Counts[from] -= int64(n)
	g.job.row.Counts[to] += int64(n)
	s.out.entered[to] += int64(n)
	g.job.stats.recordTransition(now, from, to, n)
	s.changedTotals(g.job.stats)
	g.row.FinishedAt = 0
	if to.Final() && g.row.Counts.Finished() == int64(g.row.Size) {
		g.row.FinishedAt = now
	}
	s.changedGroup(g)
	s.changedJob(g.job)
	s.touchJob(g.job)
	if (to == muster.Failed || to == muster.TimedOut) && g.job.row.Spec.OnFailure == muster.OnFailureStop {
		addOnce(&s.failedJobs, &g.job.newFailure, g.job)
	}
	if len(g.dependents) > 0 && g.updateOutcome() {
		s.touchGroup(g)
	}
}

func (s *State) touchJob(j *job)     { addOnce(&s.touchedJobs, &j.touched, j) }
func (s *State) touchGroup(g *group) { addOnce(&s.touchedGroups, &g.touched, g) }

// setState changes the state of one task that has a row, after all other changes to the
// row. A final task leaves memory, unless its group is retained.
func (s *State) setState(now muster.Time, t *task, to muster.TaskState) {
	s.transition(now, t.group, t.row.State, to, 1)
	t.row.State = to
	if t.lookup, t.lookedUp, t.parked = false, false, false; t.row.Cache != nil {
		if s.inflight.Unqueue(t.cacheKey(), t); to == muster.Queued {
			s.inflight.Queue(t.cacheKey(), t)
		}
	}
	s.changedTask(t)
	s.publishTask(now, t)
	if g := t.group; to.Final() && !g.row.Retained && t.element() < g.row.Materialized {
		delete(g.tasks, t.element())
	}
	s.armTask(t)
}

// transitionRest changes the state of all unmaterialized elements at once.
func (s *State) transitionRest(now muster.Time, g *group, to muster.TaskState, reason muster.Reason, message string) {
	n := g.unmaterialized()
	if n == 0 {
		return
	}
	s.transition(now, g, g.row.UnmaterializedState, to, n)
	g.row.UnmaterializedState, g.row.UnmaterializedSince, g.row.Reason, g.row.Message = to, now, reason, message
	if to == muster.Queued {
		s.enqueueRest(g)
	} else if g.item.Queued() {
		s.queue.Remove(&g.item)
	}
	s.armGroup(g)
}

// materialize gives an element a row of its own, in the state of the unmaterialized elements.
func (s *State) materialize(g *group, element int) *task {
	t := g.materialize(element)
	if g.item.Queued() {
		s.requeueRest(g)
	}
	s.changedGroup(g)
	s.changedTask(t)
	return t
}

// propagate handles the consequences of state changes: stages that became ready or
// never will, jobs whose state changed, jobs that ended.
func (s *State) propagate(now muster.Time) {
	for {
		s.stopFailedJobs(now)
		if len(s.touchedGroups) == 0 {
			break
		}
		g := s.touchedGroups[0]
		s.touchedGroups = s.touchedGroups[1:]
		g.touched = false
		for _, r := range g.dependents {
			s.advanceStage(now, r)
		}
	}
	s.touchedGroups = nil
	for _, j := range s.touchedJobs {
		j.touched = false
		if state := j.row.Counts.State(); state != j.row.State {
			if j.row.State.Final() {
				j.row.RetriedAt = now
			}
			j.row.State = state
			j.row.FinishedAt = 0
			if state.Final() {
				j.row.FinishedAt = now
			}
			s.changedJob(j)
			s.publishJob(now, j)
		}
		if j.row.State.Final() {
			s.out.jobsEnded = append(s.out.jobsEnded, JobEnded{
				Job: j.row.ID, UID: j.row.UID, Name: j.row.Name, State: j.row.State, CreatedAt: j.row.CreatedAt, At: j.row.FinishedAt,
			})
			s.removeJob(j)
		}
	}
	s.touchedJobs = s.touchedJobs[:0]
}

// removeJob removes an ended job from memory.
func (s *State) removeJob(j *job) {
	delete(s.jobs, j.row.ID)
	delete(s.failing, j.row.ID)
	j.project.Jobs--
	if j.project.Jobs == 0 {
		delete(s.projects, j.project.Name)
	}
}

// transitionWaiting changes the state of all waiting tasks of a stage.
func (s *State) transitionWaiting(now muster.Time, g *group, to muster.TaskState, reason muster.Reason, message string) {
	if int64(g.unmaterialized()) < g.row.Counts[muster.Waiting] || g.row.UnmaterializedState != muster.Waiting {
		for _, t := range g.sortedTasks() {
			if t.row.State != muster.Waiting {
				continue
			}
			t.row.Reason, t.row.Message = reason, message
			if to == muster.Queued {
				t.row.QueuedAt = now
			} else {
				t.row.FinishedAt = now
			}
			s.setState(now, t, to)
			if to == muster.Queued {
				s.enqueue(t)
			}
		}
	}
	if g.row.UnmaterializedState == muster.Waiting {
		s.transitionRest(now, g, to, reason, message)
	}
	if g.gang() {
		s.enqueueGang(now, g)
	}
}
