package sched

import (
	"fmt"
	"slices"

	"github.com/muster-dev/muster"
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
	if met, err := g.job.stageGraph().Condition(g.row.Index, g.job.result); err != nil {
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

// outcome is what the stages that need a stage have to know of it.
type outcome struct {
	ended        bool // all of its tasks have
	unsuccessful bool // a task ended without success
	failed       bool // a task of it, or of a stage that it needs, directly or not, has failed or timed out
}

// unmet counts the needs of a stage by their outcome, so that whether it is ready takes no look at them.
type unmet struct{ unended, unsuccessful, failed int }

// updateOutcome tells the dependents of a stage, after its counts changed, and reports whether its outcome did. It takes time in proportion
// to the dependents, but only when one of the three changes; a change of failed also changes the outcomes of the dependents.
func (g *group) updateOutcome() bool {
	is := outcome{ended: g.ended(), unsuccessful: g.unsuccessful() > 0, failed: g.unmet.failed > 0 || g.row.Counts[muster.Failed]+g.row.Counts[muster.TimedOut] > 0}
	was := g.outcome
	if is == was {
		return false
	}
	g.outcome = is
	count := func(n *int, was, is bool) {
		switch {
		case is && !was:
			*n++
		case was && !is:
			*n--
		}
	}
	for _, d := range g.dependents {
		count(&d.unmet.unended, !was.ended, !is.ended)
		count(&d.unmet.unsuccessful, was.unsuccessful, is.unsuccessful)
		count(&d.unmet.failed, was.failed, is.failed)
	}
	if is.failed != was.failed {
		for _, d := range g.dependents {
			d.updateOutcome()
		}
	}
	return true
}

// ready reports whether the stages that g needs are as its when says. If they never will be, the reason says why.
func (g *group) ready() (ready bool, reason muster.Reason, message string) {
	switch {
	case g.unmet.unsuccessful > 0 && !g.spec().RunsAfterFailure():
		i := slices.IndexFunc(g.needs, func(n *group) bool { return n.outcome.unsuccessful })
		return false, muster.NeedNotMet, fmt.Sprintf("stage %q, which it needs, did not succeed", g.needs[i].row.Name)
	case g.unmet.unended > 0:
		return false, muster.NoReason, ""
	case g.spec().When == muster.WhenFailed && g.unmet.failed == 0:
		return false, muster.ConditionFalse, "when: failed, and no stage before it has failed"
	}
	return true, muster.NoReason, ""
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
