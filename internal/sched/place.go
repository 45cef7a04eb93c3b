package sched

import (
	"maps"
	"slices"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/placement"
	"github.com/muster-dev/muster/internal/sched/queue"
)

// Place assigns what can be assigned. From the highest priority down, it repeatedly
// takes the project with the least dominant share and assigns its oldest task that
// fits a worker now. Workers reserved for a starving task are left to it. Call it
// once after a batch of events.
func (s *State) Place(now muster.Time) {
	s.queue.Place(now, &s.capacity, func(it *queue.Item) queue.Outcome { return s.placeItem(now, it) })
	s.propagate(now)
}

// enqueue puts a queued task into the queue and sets its timer. It ignores members of
// a gang, which are queued together: see enqueueGang.
func (s *State) enqueue(t *task) {
	j := t.Group.Job
	if t.Group.Gang() {
		return
	}
	s.queue.Add(&t.Item, j.Row.Priority, j.Project, s.shapeOf(t.Group))
	s.armTask(t)
}

// enqueueRest puts the group's unmaterialized elements into the queue.
func (s *State) enqueueRest(g *group) {
	g.Item.Num = g.Row.First + g.Row.Materialized
	s.queue.Add(&g.Item, g.Job.Row.Priority, g.Job.Project, s.shapeOf(g))
}

// requeueRest updates the queue item of a group's unmaterialized elements after their
// first index or number changed.
func (s *State) requeueRest(g *group) {
	if g.Unmaterialized() > 0 {
		s.queue.Renumber(&g.Item, g.Row.First+g.Row.Materialized)
		return
	}
	s.queue.Remove(&g.Item)
	s.armGroup(g)
}

// shapeOf returns the shape of the group's tasks. The stage must be ready: until then
// references in its spec are not resolved.
func (s *State) shapeOf(g *group) *queue.Shape {
	if g.Shape == nil || g.Shape.Evicted() {
		g.Shape = s.queue.Shape(s.limits.Need(g.Job.Row.Project, g.Spec()))
	}
	return g.Shape
}

// reshape recomputes the shapes of queued tasks. It is called when the first worker joins that lacks
// a feature or names a project, which is rare: it examines every stage.
func (s *State) reshape() {
	for _, id := range slices.Sorted(maps.Keys(s.jobs)) {
		j := s.jobs[id]
		for _, g := range j.Groups {
			if g.Shape == nil || s.limits.Current(g.Shape.Need, j.Row.Project, g.Spec()) {
				continue
			}
			g.Shape = nil
			if g.Item.Queued() {
				s.queue.Remove(&g.Item)
				s.queue.Add(&g.Item, j.Row.Priority, j.Project, s.shapeOf(g))
			}
			for _, t := range g.SortedTasks() {
				if t.Item.Queued() {
					s.queue.Remove(&t.Item)
					s.queue.Add(&t.Item, j.Row.Priority, j.Project, s.shapeOf(g))
				}
			}
		}
	}
}

// placeItem assigns the item's task, or the next unmaterialized element of its group,
// to the best worker, if there is one.
func (s *State) placeItem(now muster.Time, it *queue.Item) queue.Outcome {
	if g, ok := it.Owner.(*group); ok && g.Gang() {
		return s.placeGang(now, g)
	}
	var avoid func(*queue.Worker) bool
	if t, ok := it.Owner.(*task); ok && len(t.Avoid) > 0 {
		avoid = t.Avoid.Active(now).Has
	}
	best, onlyAvoided := s.queue.Best(now, it, avoid)
	switch {
	case onlyAvoided:
		return queue.Skipped
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
		s.assign(now, s.materialize(owner, owner.Row.Materialized), w, need, nil)
	}
	return queue.Placed
}

// assign starts a new attempt of t, which needs n, on w. membership is nil except for
// a gang's member.
func (s *State) assign(now muster.Time, t *task, w *worker, n *placement.Need, membership *Membership) {
	g := t.Group
	grant := w.Usage.Grant(n)
	t.Row.Attempt = w.Unused(t.Row.ID, t.Row.Attempt+1)
	t.Row.Worker, t.Row.Grant, t.Row.AssignedAt = w.Row.ID, &grant, now
	t.Row.NotBefore, t.Row.Reason, t.Row.Message = 0, muster.NoReason, ""
	s.allocate(t, w)
	w.Health.RecordAssigned(now, t.Attempt())
	s.onHealthChange(now, w)
	s.setState(now, t, muster.Assigned)
	s.send(w, Assign{
		Worker: w.Row.ID, Attempt: t.Attempt(), UID: g.Job.Row.UID, Group: g.Row.Index, Element: t.Element(), Grant: grant, Spec: g.Spec(), Inputs: g.Inputs,
		Checkpoint: t.Row.Checkpoint, Gang: membership, QueuedAt: t.Row.QueuedAt, At: now,
	})
}

// allocate reserves the task's grant on w.
func (s *State) allocate(t *task, w *worker) {
	w.Usage.Reserve(t.Row.Grant)
	s.queue.LoadChanged(&w.Worker)
	t.Group.Job.Project.Usage.AddGrant(t.Row.Grant, &w.Row.Resources, 1)
	t.Shape = s.shapeOf(t.Group)
	t.Shape.Held++
	t.Worker, t.HeldIndex, t.Accepted, t.LastRenewal = w, len(w.Held), false, 0
	w.Held = append(w.Held, t)
}

// release returns the task's grant to its worker.
func (s *State) release(now muster.Time, t *task) {
	w := t.Worker
	w.Usage.Release(t.Row.Grant)
	w.Shrunk = w.Shrunk && w.Usage.Overcommitted()
	s.queue.LoadChanged(&w.Worker)
	t.Group.Job.Project.Usage.AddGrant(t.Row.Grant, &w.Row.Resources, -1)
	t.Shape.Held--
	last := len(w.Held) - 1
	w.Held[t.HeldIndex] = w.Held[last]
	w.Held[t.HeldIndex].HeldIndex = t.HeldIndex
	w.Held[last] = nil
	w.Held = w.Held[:last]
	t.Worker = nil
	if len(w.Held) == 0 {
		s.onIdle(now, w)
	}
}
