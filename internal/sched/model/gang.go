package model

import (
	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/sched/gang"
	"github.com/muster-dev/muster/internal/sched/heap"
)

// Gang reports whether the group's tasks start together or not at all. They are
// queued as one: under the group's item, whether they have rows or not.
func (g *Group) Gang() bool { return g.Job.Row.Spec.Tasks[g.Row.Index].Gang != nil }

// AwaitingGang reports whether the task is a gang's member that is done and waits for the others.
func (t *Task) AwaitingGang() bool { return t.Group.Gang() && gang.AwaitingOthers(&t.Row) }

// MemberCounts counts the gang's members with rows, except one of them.
func (g *Group) MemberCounts(except *Task) (n gang.MemberCounts) {
	for _, t := range g.Tasks {
		if t != except {
			n.Count(&t.Row)
		}
	}
	return n
}

// NotBefore returns when the backoffs of all members are over.
func (g *Group) NotBefore() (at muster.Time) {
	for _, t := range g.Tasks {
		at = max(at, t.Row.NotBefore)
	}
	return at
}

// gangDue returns the next time at which a gang as a whole changes without an event, or 0.
func (g *Group) gangDue() (at muster.Time) {
	if g.Row.Counts[muster.Queued] < int64(g.Row.Size) {
		return 0
	}
	if !g.Item.Queued() {
		return g.NotBefore()
	}
	for _, t := range g.Tasks {
		at = heap.Earlier(at, t.Avoid.NextExpiry())
	}
	return heap.Earlier(at, g.QueueDeadline())
}

// QueueDeadline returns when a queued gang times out, or 0.
func (g *Group) QueueDeadline() muster.Time {
	q := g.Spec().QueueTimeout
	if q <= 0 {
		return 0
	}
	since := g.NotBefore()
	if g.Unmaterialized() > 0 {
		since = g.Row.UnmaterializedSince
	}
	for _, t := range g.Tasks {
		since = max(since, t.Row.QueuedAt)
	}
	return since.Add(q)
}

// checkGang checks the invariants of a gang.
func (g *Group) checkGang() error {
	n := g.MemberCounts(nil)
	n.Pending += g.Unmaterialized()
	all := g.Row.Counts[muster.Queued] == int64(g.Row.Size)
	switch {
	case g.Item.Queued() && !all:
		return broken("stage %q of job %s is a gang in the queue, but only %d members are queued", g.Row.Name, g.Row.Job, g.Row.Counts[muster.Queued])
	case all && !g.Item.Queued() && !g.Timer.Armed():
		return broken("stage %q of job %s is a gang that is neither in the queue nor waiting for a timer", g.Row.Name, g.Row.Job)
	case g.Row.Counts[muster.Succeeded] > 0 && !g.Succeeded():
		return broken("stage %q of job %s is a gang, but only %d members have succeeded", g.Row.Name, g.Row.Job, g.Row.Counts[muster.Succeeded])
	}
	for _, t := range g.Tasks {
		switch {
		case t.Item.Queued():
			return broken("task %s is in the queue without its gang", t.Row.ID)
		case n.Broken() && t.Worker != nil && t.PreemptReason == muster.NoReason && t.Row.State != muster.Cancelling, n.Broken() && t.AwaitingGang():
			return broken("task %s keeps running though its gang is broken", t.Row.ID)
		}
	}
	return nil
}
