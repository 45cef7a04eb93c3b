package sched

import (
	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/place"
	"github.com/muster-dev/muster/internal/sched/explain"
	"github.com/muster-dev/muster/internal/sched/queue"
)

// Explain says why a live task stands where it stands. It returns a NotFound
// error for a task that is not known, or has ended. It changes nothing, and costs
// a look at every worker and at some ten thousand queued tasks at the most.
func (s *State) Explain(now muster.Time, id muster.TaskID) (explain.Explanation, error) {
	ended := muster.Errorf(muster.NotFound, "task %s has ended, or never was: only a task that has not ended can be explained", id)
	j := s.jobs[id.Job]
	if j == nil {
		return explain.Explanation{}, ended
	}
	g := j.group(id.Num)
	if g == nil {
		return explain.Explanation{}, ended
	}
	x := explain.Explanation{Task: id, State: g.row.Rest}
	t := g.tasks[id.Num-g.row.First]
	if t != nil {
		x.State = t.row.State
	}
	if x.State.Final() || t == nil && id.Num < g.row.First+g.row.Next {
		return explain.Explanation{}, ended
	}
	switch x.State {
	case muster.Waiting:
		for _, n := range g.needs {
			if !n.succeeded() {
				x.Waiting = append(x.Waiting, n.row.Name)
			}
		}
		x.Summary = explain.Needs(x.Waiting)
	case muster.Queued:
		q := explain.Question{ID: id, Need: s.shapeOf(g).Need, Priority: j.row.Priority, Project: j.project}
		switch {
		case g.gang():
			if n := g.standing(nil); n.Held > 0 {
				x.Summary = explain.Broken(&t.row, n.Held)
				return x, nil
			}
			q.ID.Num = g.row.First
			for _, m := range g.elements() {
				q.Asks(&m.row, m.avoid)
			}
		case t != nil:
			q.Asks(&t.row, t.avoid)
		}
		x.Answer(now, q, s.queue, s.there())
	default:
		if t.done() {
			n := g.standing(t)
			x.Summary = explain.Done(n.Held)
			return x, nil
		}
		h := explain.Holding{Worker: t.worker.row.Name, Room: t.room, StopBy: t.stopBy, Lease: t.lease()}
		x.Summary = h.Held(&t.row)
	}
	return x, nil
}

// Plan says where the first task of each stage of a normalized spec would run if
// it were submitted now.
func (s *State) Plan(now muster.Time, spec *muster.Spec) []explain.Explanation {
	list := make([]explain.Explanation, len(spec.Tasks))
	for i := range spec.Tasks {
		t := &spec.Tasks[i]
		x := &list[i]
		*x = explain.Explanation{Stage: t.Name, State: muster.Queued, Waiting: t.Needs}
		x.Answer(now, explain.Question{
			ID: muster.TaskID{Job: s.next}, Need: place.NewNeed(t), Priority: priority(spec), Project: s.projects[spec.Project],
		}, s.queue, s.there())
		if len(t.Needs) > 0 {
			x.State = muster.Waiting
			x.Summary = explain.Needs(t.Needs) + "; then: " + x.Summary
			x.Ahead, x.Position, x.Start, x.Beyond = 0, 0, 0, false
		}
	}
	return list
}

// there returns the workers that have not left: what those lack is beside the point.
func (s *State) there() []*queue.Worker {
	list := make([]*queue.Worker, 0, len(s.order))
	for _, w := range s.order {
		if !w.gone {
			list = append(list, &w.Worker)
		}
	}
	return list
}
