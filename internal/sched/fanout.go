package sched

import (
	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/dag"
)

// A stage whose array is a reference has one waiting task and reserves the numbers of muster.MaxFanOut, so that those of all tasks are known
// from the beginning. When it becomes ready, it gets its size together with its resolved spec, in one commit.

// fanOut gives a stage whose array was resolved its tasks, which wait.
func (s *State) fanOut(now muster.Time, g *group) {
	if g.job.row.Spec.Tasks[g.row.Index].DynamicArray() {
		g.job.stageGraph().SetElements(g.row.Index, g.row.Resolved)
	}
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

// stageGraph returns the graph of the job's stages, with the elements of those that were fanned out. Jobs whose stages need no others have
// no use for it.
func (j *job) stageGraph() *dag.Graph {
	if j.graph == nil {
		j.graph = dag.New(j.row.Spec)
		for _, g := range j.dynamic {
			if g.row.Resolved != nil {
				j.graph.SetElements(g.row.Index, g.row.Resolved)
			}
		}
	}
	return j.graph
}
