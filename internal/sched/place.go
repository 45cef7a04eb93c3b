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
	j := t.group.job
	if t.group.gang() {
		return
	}
	if !s.park(t) {
		s.queue.Add(&t.item, j.queuePriority(), j.project, s.shapeOf(t.group))
	}
	s.armTask(t)
}

// enqueueRest puts the group's unmaterialized elements into the queue. Those that use the cache are looked up one by one.
func (s *State) enqueueRest(g *group) {
	if g.spec().Cache > 0 && !g.gang() {
		for g.unmaterialized() > 0 {
			s.enqueue(s.materialize(g, g.row.Materialized))
		}
		return
	}
	g.item.Num = g.row.First + g.row.Materialized
	s.queue.Add(&g.item, g.job.queuePriority(), g.job.project, s.shapeOf(g))
}

// requeueRest updates the queue item of a group's unmaterialized elements after their
// first index or number changed.
func (s *State) requeueRest(g *group) {
	if g.unmaterialized() > 0 {
		s.queue.Renumber(&g.item, g.row.First+g.row.Materialized)
		return
	}
	s.queue.Remove(&g.item)
	s.armGroup(g)
}

// shapeOf returns the shape of the group's tasks. The stage must be ready: until then
// references in its spec are not resolved.
func (s *State) shapeOf(g *group) *queue.Shape {
	if g.shape == nil || g.shape.Evicted() {
		g.shape = s.queue.Shape(s.limits.Need(g.job.row.Project, g.spec()))
	}
	return g.shape
}

// reshape recomputes the shapes of queued tasks. It is called when the first worker joins that lacks
// a feature or names a project, which is rare: it examines every stage.
func (s *State) reshape() {
	for _, id := range slices.Sorted(maps.Keys(s.jobs)) {
		j := s.jobs[id]
		for _, g := range j.groups {
			if g.shape == nil || s.limits.Current(g.shape.Need, j.row.Project, g.spec()) {
				continue
			}
			g.shape = nil
			s.requeue(g)
		}
	}
}

// requeue moves the queued items of a group to the bucket of their current priority and shape.
func (s *State) requeue(g *group) {
	j := g.job
	if g.item.Queued() {
		s.queue.Remove(&g.item)
		s.queue.Add(&g.item, j.queuePriority(), j.project, s.shapeOf(g))
	}
	for _, t := range g.sortedTasks() {
		if t.item.Queued() {
			s.queue.Remove(&t.item)
			s.queue.Add(&t.item, j.queuePriority(), j.project, s.shapeOf(g))
		}
	}
}

// placeItem assigns the item's task, or the next unmaterialized element of its group,
// to the best worker, if there is one.
func (s *State) placeItem(now muster.Time, it *queue.Item) queue.Outcome {
	if g, ok := it.Owner.(*group); ok && g.gang() {
		return s.placeGang(now, g)
	}
	var avoid func(*queue.Worker) bool
	var g *group
	switch owner := it.Owner.(type) {
	case *group:
		g = owner
	case *task:
		if g = owner.group; len(owner.avoid) > 0 {
			avoid = owner.avoid.Active(now).Has
		}
	}
	if t, ok := it.Owner.(*task); ok && s.park(t) {
		s.queue.Remove(it)
		s.armTask(t)
		return queue.Placed
	}
	if g.atLimit() {
		return queue.Skipped
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
		s.assign(now, s.materialize(owner, owner.row.Materialized), w, need, nil)
	}
	return queue.Placed
}

// assign starts a new attempt of t, which needs n, on w. membership is nil except for
// a gang's member.
func (s *State) assign(now muster.Time, t *task, w *worker, n *placement.Need, membership *muster.Membership) {
	g := t.group
	grant := w.Usage.Grant(n)
	t.row.Attempt = w.unused(t.row.ID, t.row.Attempt+1)
	t.row.Worker, t.row.Grant, t.row.AssignedAt = w.row.ID, &grant, now
	t.row.NotBefore, t.row.Reason, t.row.Message = 0, muster.NoReason, ""
	s.allocate(t, w)
	w.health.RecordAssigned(now, t.attempt())
	s.onHealthChange(now, w)
	s.setState(now, t, muster.Assigned)
	s.send(w, Assign{
		Worker: w.row.ID, Attempt: t.attempt(), UID: g.job.row.UID, Project: g.job.row.Project, Group: g.row.Index, Element: t.element(), Grant: grant, Spec: g.spec(), Inputs: g.inputs,
		Signature: g.job.row.Spec.Signature, Checkpoint: t.row.Checkpoint, Gang: membership, QueuedAt: t.row.QueuedAt, At: now,
	})
}

// allocate reserves the task's grant on w.
func (s *State) allocate(t *task, w *worker) {
	w.Usage.Reserve(t.row.Grant)
	s.queue.LoadChanged(&w.Worker)
	t.group.job.project.Usage.AddGrant(t.row.Grant, &w.row.Resources, 1)
	t.shape = s.shapeOf(t.group)
	t.shape.Held++
	t.worker, t.heldIndex, t.accepted, t.lastRenewal = w, len(w.held), false, 0
	if t.row.Cache != nil {
		s.inflight.Start(t.cacheKey(), t)
	}
	w.held = append(w.held, t)
}

// release returns the task's grant to its worker.
func (s *State) release(now muster.Time, t *task) {
	w := t.worker
	w.Usage.Release(t.row.Grant)
	w.shrunk = w.shrunk && w.Usage.Overcommitted()
	s.queue.LoadChanged(&w.Worker)
	t.group.job.project.Usage.AddGrant(t.row.Grant, &w.row.Resources, -1)
	t.shape.Held--
	if t.row.Cache != nil {
		s.inflight.End(t.cacheKey(), t)
	}
	last := len(w.held) - 1
	w.held[t.heldIndex] = w.held[last]
	w.held[t.heldIndex].heldIndex = t.heldIndex
	w.held[last] = nil
	w.held = w.held[:last]
	t.worker = nil
	if len(w.held) == 0 {
		s.onIdle(now, w)
	}
}
