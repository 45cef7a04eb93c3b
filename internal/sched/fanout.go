package sched

import (
	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/dag"
)

// A stage whose array is a reference has one waiting task and reserves the numbers of muster.MaxFanOut, so that those of all tasks are known
// from the beginning. When it becomes ready, it gets its size together with its resolved spec, in one commit.

// fanOut gives a stage whose array was resolved its tasks, which wait.
func (s *State) fanOut(now muster.Time, g *group) {
	more := g.spec().Size() - g.row.Size
	if more <= 0 {
		return
	}
	g.row.Size += more
	g.row.UnmaterializedState, g.row.UnmaterializedSince, g.row.Reason, g.row.Message = muster.Waiting, now, muster.NoReason, ""
	g.row.Counts[muster.Waiting] += int64(more)
	g.job.row.Counts[muster.Waiting] += int64(more)
	g.job.stats.counts[muster.Waiting] += int64(more)
	s.out.entered[muster.Waiting] += int64(more)
	s.changedTotals(g.job.stats)
	s.changedGroup(g)
	s.changedJob(g.job)
	s.touchJob(g.job)
}

// unsized reports whether the number of the stage's tasks is not known yet.
func (g *group) unsized() bool {
	return g.job.row.Spec.Tasks[g.row.Index].DynamicArray() && g.row.Resolved == nil && !g.ended()
}

// spec returns the job's spec with the elements of the stages that were fanned out.
func (j *job) spec() *muster.Spec {
	if len(j.dynamic) == 0 {
		return j.row.Spec
	}
	return dag.WithElements(j.row.Spec, func(stage int) *muster.TaskSpec { return j.groups[stage].row.Resolved })
}
