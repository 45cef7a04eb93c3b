package sched

import (
	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/place"
	"github.com/muster-dev/muster/internal/sched/effect"
	"github.com/muster-dev/muster/internal/sched/gang"
	"github.com/muster-dev/muster/internal/sched/queue"
)

// Place assigns what can be assigned: for each priority from the highest, always
// to the project with the least dominant share, its oldest task whose need a
// worker can meet now. Workers that are kept free for a task that has waited for
// too long are left to it. Call it once after a batch of events.
func (s *State) Place(now muster.Time) {
	s.queue.Place(now, &s.fleet, func(it *queue.Item) queue.Outcome { return s.try(now, it) })
	s.settle(now)
}

// enqueue puts a queued task into the queue and sets its timer. Of a gang all
// members stand there together: see lineUp.
func (s *State) enqueue(t *task) {
	j := t.group.job
	if t.group.gang() {
		return
	}
	s.queue.Add(&t.item, j.row.Priority, j.project, s.shapeOf(t.group))
	s.armTask(t)
}

// enqueueRest puts the group's rest into the queue.
func (s *State) enqueueRest(g *group) {
	g.item.Num = g.row.First + g.row.Next
	s.queue.Add(&g.item, g.job.row.Priority, g.job.project, s.shapeOf(g))
}

// requeueRest corrects the place of a group's rest after Next or the number of
// elements without rows changed.
func (s *State) requeueRest(g *group) {
	if g.rest() > 0 {
		s.queue.Renumber(&g.item, g.row.First+g.row.Next)
		return
	}
	s.queue.Remove(&g.item)
	s.armGroup(g)
}

// shapeOf returns the shape of the need of the group's tasks. It is asked for
// only once the stage is ready: until then references in its spec are open.
func (s *State) shapeOf(g *group) *queue.Shape {
	if g.shape == nil || g.shape.Forgotten() {
		g.shape = s.queue.Shape(place.NewNeed(g.spec()))
	}
	return g.shape
}

// try assigns the item's task, or the next element of its group's rest, to the
// best worker, if there is one.
func (s *State) try(now muster.Time, it *queue.Item) queue.Outcome {
	if g, ok := it.Owner.(*group); ok && g.gang() {
		return s.tryGang(now, g)
	}
	var avoid func(*queue.Worker) bool
	if t, ok := it.Owner.(*task); ok && len(t.avoid) > 0 {
		avoid = t.avoid.Now(now).Has
	}
	best, shy := s.queue.Best(now, it, avoid)
	switch {
	case shy:
		return queue.Aside
	case best == nil:
		return queue.Blocked
	}
	w := best.Owner.(*worker) //nolint:forcetypeassert // all workers of the index are
	need := it.Shape().Need
	switch owner := it.Owner.(type) {
	case *task:
		s.queue.Remove(it)
		s.assign(now, owner, w, need, nil)
	case *group:
		s.assign(now, s.single(owner, owner.row.Next), w, need, nil)
	}
	return queue.Placed
}

// assign starts a new attempt of t, which needs n, on w. seat is that of a gang's
// member, or nil.
func (s *State) assign(now muster.Time, t *task, w *worker, n *place.Need, seat *gang.Seat) {
	g := t.group
	grant := w.Book.Grant(n)
	t.row.Attempt++
	t.row.Worker, t.row.Grant, t.row.AssignedAt = w.row.ID, &grant, now
	t.row.NotBefore, t.row.Reason, t.row.Message = 0, muster.NoReason, ""
	s.hold(t, w)
	s.set(now, t, muster.Assigned)
	s.tell(w, effect.Assign{
		Worker: w.row.ID, Attempt: t.attempt(), Group: g.row.Index, Element: t.element(), Grant: grant, Spec: g.spec(), Inputs: g.inputs,
		Checkpoint: t.row.Checkpoint, Gang: seat,
	})
}

// hold enters what the task's row grants it of w.
func (s *State) hold(t *task, w *worker) {
	w.Book.Take(t.row.Grant)
	s.queue.Changed(&w.Worker)
	t.group.job.project.Holds.Grant(t.row.Grant, &w.row.Resources, 1)
	t.shape = s.shapeOf(t.group)
	t.shape.Held++
	t.worker, t.at, t.accepted = w, len(w.held), false
	w.held = append(w.held, t)
}

// release ends what a task holds of its worker.
func (s *State) release(t *task) {
	w := t.worker
	w.Book.Return(t.row.Grant)
	w.shrunk = w.shrunk && w.Book.Over()
	s.queue.Changed(&w.Worker)
	t.group.job.project.Holds.Grant(t.row.Grant, &w.row.Resources, -1)
	t.shape.Held--
	last := len(w.held) - 1
	w.held[t.at] = w.held[last]
	w.held[t.at].at = t.at
	w.held[last] = nil
	w.held = w.held[:last]
	t.worker = nil
	if len(w.held) == 0 {
		s.emptied(w)
	}
}
