package sched

import (
	"fmt"
	"slices"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/dag"
)

// advanceStage queues a waiting stage that became ready, or skips one that never will.
func (s *State) advanceStage(now muster.Time, g *group) {
	if g.row.Counts[muster.Waiting] == 0 {
		return
	}
	ready, reason, message := g.ready()
	if !ready {
		if reason != muster.NoReason {
			s.transitionWaiting(now, g, muster.Skipped, reason, message)
		}
		return
	}
	if met, err := dag.Condition(g.job.spec(), g.row.Index, g.job.result); err != nil {
		s.transitionWaiting(now, g, muster.Failed, muster.BadReference, err.Error())
		return
	} else if !met {
		s.transitionWaiting(now, g, muster.Skipped, muster.ConditionFalse, "when: "+g.spec().When+" is false")
		return
	}
	reason, err := g.resolve()
	switch {
	case g.spec().Size() == 0:
		message = fmt.Sprintf("array: %s is empty", g.job.row.Spec.Tasks[g.row.Index].Array)
		g.row.Resolved = nil
		s.transitionWaiting(now, g, muster.Skipped, muster.ConditionFalse, message)
		return
	case err != nil && g.row.Resolved == nil:
		s.transitionWaiting(now, g, muster.Failed, reason, err.Error())
		return
	}
	s.fanOut(now, g)
	if err != nil {
		s.transitionWaiting(now, g, muster.Failed, reason, err.Error())
		return
	}
	s.changedGroup(g)
	s.transitionWaiting(now, g, muster.Queued, muster.NoReason, "")
}

// ready reports whether the stages that g needs are as its when says. If they never will be, the reason says why.
func (g *group) ready() (ready bool, reason muster.Reason, message string) {
	ended := true
	for _, n := range g.needs {
		if !g.spec().RunsAfterFailure() && n.unsuccessful() > 0 {
			return false, muster.NeedNotMet, fmt.Sprintf("stage %q, which it needs, did not succeed", n.row.Name)
		}
		ended = ended && n.ended()
	}
	switch {
	case !ended:
		return false, muster.NoReason, ""
	case g.spec().When == muster.WhenFailed && !g.failedBefore():
		return false, muster.ConditionFalse, "when: failed, and no stage before it has failed"
	}
	return true, muster.NoReason, ""
}

// failedBefore reports whether a task of a stage that g needs, directly or not, has failed or timed out.
func (g *group) failedBefore() bool {
	seen := make(map[*group]bool)
	todo := slices.Clip(g.needs)
	for len(todo) > 0 {
		n := todo[0]
		todo = todo[1:]
		if n.row.Counts[muster.Failed]+n.row.Counts[muster.TimedOut] > 0 {
			return true
		}
		for _, before := range n.needs {
			if !seen[before] {
				seen[before] = true
				todo = append(todo, before)
			}
		}
	}
	return false
}

// ended reports whether all tasks did.
func (g *group) ended() bool { return g.row.Counts.Finished() == int64(g.row.Size) }

// result returns the row of an element of a stage, if the job keeps it.
func (j *job) result(stage, element int) (muster.Task, bool) {
	t := j.groups[stage].tasks[element]
	if t == nil {
		return muster.Task{}, false
	}
	return t.row, true
}

// stopFailedJobs cancels the tasks of jobs in which more tasks have failed than their spec tolerates, except those of stages that run after
// failures. A retry of a stopped job does not stop it again until another task fails.
func (s *State) stopFailedJobs(now muster.Time) {
	for _, j := range s.failedJobs { // cancelling fails no task
		j.newFailure = false
		failed := j.row.Counts[muster.Failed] + j.row.Counts[muster.TimedOut]
		if failed <= int64(j.row.Spec.MaxFailures) {
			continue
		}
		message := fmt.Sprintf("%d tasks of the job failed, and on_failure is stop", failed)
		if failed == 1 {
			message = "a task of the job failed, and on_failure is stop"
		}
		for _, g := range j.groups {
			if !g.spec().RunsAfterFailure() {
				s.cancelRange(now, g, 0, g.row.Size-1, muster.JobStopped, message)
			}
		}
	}
	s.failedJobs = s.failedJobs[:0]
}
