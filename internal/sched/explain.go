package sched

import (
	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/sched/explain"
	"github.com/muster-dev/muster/internal/sched/queue"
)

// Explain says why a live task is in its state. It returns a NotFound error for a
// task that is unknown or has ended. It changes nothing, and examines every worker
// and at most about ten thousand queued tasks.
func (s *State) Explain(now muster.Time, id muster.TaskID) (explain.Explanation, error) {
	ended := muster.Errorf(muster.NotFound, "task %s has ended or does not exist: only an unfinished task can be explained", id)
	j := s.jobs[id.Job]
	if j == nil {
		return explain.Explanation{}, ended
	}
	g := j.Group(id.Num)
	if g == nil {
		return explain.Explanation{}, ended
	}
	x := explain.Explanation{Task: id, State: g.Row.UnmaterializedState}
	t := g.Tasks[id.Num-g.Row.First]
	if t != nil {
		x.State = t.Row.State
	}
	if x.State.Final() || t == nil && id.Num < g.Row.First+g.Row.Materialized {
		return explain.Explanation{}, ended
	}
	switch x.State {
	case muster.Waiting:
		for _, n := range g.Needs {
			if !n.Succeeded() {
				x.Waiting = append(x.Waiting, n.Row.Name)
			}
		}
		x.Summary = explain.WaitingMessage(x.Waiting)
	case muster.Queued:
		q := explain.Query{ID: id, Need: s.shapeOf(g).Need, Priority: j.Row.Priority, Project: j.Project}
		switch {
		case g.Gang():
			if n := g.MemberCounts(nil); n.Held > 0 {
				x.Summary = explain.GangRestartMessage(&t.Row, n.Held)
				return x, nil
			}
			q.ID.Num = g.Row.First
			for _, m := range g.SortedTasks() {
				q.AddTask(&m.Row, m.Avoid)
			}
		case t != nil:
			q.AddTask(&t.Row, t.Avoid)
		}
		x.Evaluate(now, q, s.queue, s.presentWorkers())
	default:
		if t.AwaitingGang() {
			n := g.MemberCounts(t)
			x.Summary = explain.GangWaitMessage(n.Held)
			return x, nil
		}
		h := explain.Assignment{Worker: t.Worker.Row.Name, PreemptReason: t.PreemptReason, StopBy: t.StopBy, LeaseExpiry: t.LeaseExpiry(), Lacks: t.Worker.Row.UnsupportedFeatures}
		x.Summary = h.Describe(&t.Row)
	}
	return x, nil
}

// Plan says where the first task of each stage of a normalized spec would run if
// the spec were submitted now.
func (s *State) Plan(now muster.Time, spec *muster.Spec) []explain.Explanation {
	list := make([]explain.Explanation, len(spec.Tasks))
	for i := range spec.Tasks {
		t := &spec.Tasks[i]
		x := &list[i]
		*x = explain.Explanation{Stage: t.Name, State: muster.Queued, Waiting: t.Needs}
		x.Evaluate(now, explain.Query{
			ID: muster.TaskID{Job: s.nextJob}, Need: s.limits.Need(spec.Project, t), Priority: priority(spec), Project: s.projects[spec.Project],
		}, s.queue, s.presentWorkers())
		if len(t.Needs) > 0 {
			x.State = muster.Waiting
			x.Summary = explain.WaitingMessage(t.Needs) + "; then: " + x.Summary
			x.Ahead, x.Position, x.Start, x.AheadTruncated = 0, 0, 0, false
		}
	}
	return list
}

// presentWorkers returns the workers that have not left.
func (s *State) presentWorkers() []*queue.Worker {
	list := make([]*queue.Worker, 0, len(s.workers))
	for _, w := range s.workers {
		if !w.Gone {
			list = append(list, &w.Worker)
		}
	}
	return list
}
