package model

import "github.com/muster-dev/muster"

func broken(format string, args ...any) error {
	return muster.Errorf(muster.Internal, "scheduler state is inconsistent: "+format, args...)
}

// Check returns an Internal error that names the first broken invariant of the group
// and its tasks, or nil.
func (g *Group) Check() error {
	var counts muster.Counts
	outOfOrder := 0
	for e, t := range g.Tasks {
		if e != t.Element() || t.Group != g || e < 0 || e >= g.Row.Size {
			return broken("task %s is stored as element %d of stage %q", t.Row.ID, e, g.Row.Name)
		}
		if err := t.check(); err != nil {
			return err
		}
		counts[t.Row.State]++
		if e >= g.Row.Materialized {
			outOfOrder++
		} else if t.Row.State.Final() && !g.Row.Retained {
			return broken("task %s is final and still in memory", t.Row.ID)
		}
	}
	if outOfOrder != g.outOfOrder || g.Unmaterialized() < 0 {
		return broken("stage %q of job %s has %d tasks from element %d on, but counts %d", g.Row.Name, g.Row.Job, outOfOrder, g.Row.Materialized, g.outOfOrder)
	}
	if g.Row.Materialized < g.Row.Size && g.Tasks[g.Row.Materialized] != nil {
		return broken("stage %q of job %s has a row for the element %d at its cursor", g.Row.Name, g.Row.Job, g.Row.Materialized)
	}
	counts[g.Row.UnmaterializedState] += int64(g.Unmaterialized())
	for _, state := range muster.TaskStates {
		have, want := counts[state], g.Row.Counts[state]
		if pruned := state.Final() && !g.Row.Retained; have != want && (!pruned || have > want) {
			return broken("stage %q of job %s counts %d %s tasks, has %d", g.Row.Name, g.Row.Job, want, state, have)
		}
	}
	if g.Row.Counts.Total() != int64(g.Row.Size) {
		return broken("stage %q of job %s counts %d tasks, has %d", g.Row.Name, g.Row.Job, g.Row.Counts.Total(), g.Row.Size)
	}
	if g.Gang() {
		if err := g.checkGang(); err != nil {
			return err
		}
	} else if queued := g.Row.UnmaterializedState == muster.Queued && g.Unmaterialized() > 0; queued != (g.Item.Queued()) {
		return broken("the unmaterialized elements of stage %q of job %s (%d, %s) are in the queue: %t", g.Row.Name, g.Row.Job, g.Unmaterialized(), g.Row.UnmaterializedState, g.Item.Queued())
	}
	return g.checkNeeds(counts)
}

// checkNeeds checks that nothing of a stage started before its needs were met.
func (g *Group) checkNeeds(counts muster.Counts) error {
	active := counts[muster.Queued] + counts[muster.Assigned] + counts[muster.Running]
	for _, n := range g.Needs {
		if active > 0 && !n.Succeeded() {
			return broken("stage %q of job %s has %d active tasks before %q succeeded", g.Row.Name, g.Row.Job, active, n.Row.Name)
		}
		if counts[muster.Waiting] > 0 && n.Unsuccessful() > 0 {
			return broken("stage %q of job %s waits for %q, which did not succeed", g.Row.Name, g.Row.Job, n.Row.Name)
		}
	}
	if len(g.Needs) == 0 && counts[muster.Waiting] > 0 {
		return broken("stage %q of job %s waits, but needs no stage", g.Row.Name, g.Row.Job)
	}
	return nil
}

func (t *Task) check() error {
	r := &t.Row
	switch held := r.State.HoldsResources() && !t.AwaitingGang(); {
	case held != (t.Worker != nil):
		return broken("task %s is %s, but held by a worker: %t", r.ID, r.State, t.Worker != nil)
	case held && (r.Worker != t.Worker.Row.ID || r.Grant == nil || r.Attempt < 1 || r.AssignedAt == 0):
		return broken("task %s is %s without worker, grant, attempt or time", r.ID, r.State)
	case held && (t.HeldIndex >= len(t.Worker.Held) || t.Worker.Held[t.HeldIndex] != t):
		return broken("task %s is not among the tasks of worker %s", r.ID, r.Worker)
	case r.State != muster.Queued && t.Item.Queued():
		return broken("task %s is %s and in the queue", r.ID, r.State)
	case r.State == muster.Queued && !t.Item.Queued() && !t.Timer.Armed() && !t.Group.Gang():
		return broken("task %s is queued, but neither in the queue nor waiting for a timer", r.ID)
	case r.State == muster.Cancelling && !t.Timer.Armed():
		return broken("task %s is being cancelled without a timer", r.ID)
	case held && t.Worker.Evicting && t.PreemptReason == muster.NoReason && r.State != muster.Cancelling:
		return broken("task %s is not being preempted on worker %s", r.ID, r.Worker)
	case t.PreemptReason != muster.NoReason && (!held || !t.Timer.Armed()):
		return broken("task %s is %s and preempted without a timer", r.ID, r.State)
	case held && !t.Worker.Reachable() && !t.Timer.Armed():
		return broken("task %s has a lease without a timer", r.ID)
	case r.State.Final() && (r.FinishedAt == 0 || t.Timer.Armed()):
		return broken("task %s has ended without a time or with a timer", r.ID)
	}
	return nil
}
