package model

import (
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/sched/heap"
)

// How long things may take where a spec says nothing, and beyond what it says.
const (
	DefaultLease = muster.Duration(10 * time.Minute) // disconnect.grace
	defaultGrace = muster.Duration(10 * time.Second) // kill.grace
	cancelSlack  = muster.Duration(30 * time.Second) // beyond kill.grace, for a stopped task's report
	saveSlack    = muster.Duration(5 * time.Minute)  // beyond checkpoint.grace, also for what it saved to come here
)

// Turn orders what is due at the same time: workers, then tasks and groups by job.
func (w *Worker) Turn() heap.Turn { return heap.Turn{Name: string(w.Row.ID)} }

// Turn puts the tasks of a job in the order of their numbers.
func (t *Task) Turn() heap.Turn { return heap.Turn{Sort: 1, Job: t.Row.ID.Job, Num: t.Row.ID.Num} }

// Turn puts the groups of a job after its tasks.
func (g *Group) Turn() heap.Turn {
	return heap.Turn{Sort: 1, Job: g.Row.Job, Num: muster.MaxTasks + g.Row.Index}
}

// Due returns the next time at which t changes without an event, or 0.
func (t *Task) Due() muster.Time {
	switch t.Row.State {
	case muster.Queued:
		if t.Group.Gang() {
			return 0 // the gang has a timer of its own
		}
		if !t.Item.Queued() {
			return t.Row.NotBefore
		}
		return heap.Earlier(t.Deadline(), t.Avoid.Next())
	case muster.Assigned, muster.Running:
		if t.Done() {
			return 0
		}
		if at := t.Lease(); at > 0 {
			return at // it may run there still: to make room can wait until the worker hears of it
		}
		return t.StopBy
	case muster.Cancelling:
		return heap.Earlier(t.StopBy, t.Lease())
	default:
		return 0
	}
}

// Deadline returns when a queued task has waited for too long, or 0.
func (t *Task) Deadline() muster.Time {
	if q := t.Group.Spec().QueueTimeout; q > 0 {
		return max(t.Row.QueuedAt, t.Row.NotBefore).Add(q)
	}
	return 0
}

// Lease returns when the current attempt is given up because its worker is away,
// or 0 while the worker is there.
func (t *Task) Lease() muster.Time {
	if t.Worker.Reachable() {
		return 0
	}
	return t.Worker.Seen.Add(t.Group.Spec().Disconnect.Grace.Or(DefaultLease))
}

// Due returns the next time at which the group's rest, or the gang, changes without an
// event, or 0.
func (g *Group) Due() muster.Time {
	if g.Gang() {
		return g.gangAt()
	}
	if q := g.Spec().QueueTimeout; q > 0 && g.Row.UnmaterializedState == muster.Queued && g.Rest() > 0 {
		return g.Row.UnmaterializedSince.Add(q)
	}
	return 0
}

// Patience is how long a task that was told to end may take until its report is
// here. One that makes room has the time to save, and its worker to bring that here.
func (t *Task) Patience() muster.Duration {
	spec := t.Group.Spec()
	d := spec.Kill.Grace.Or(defaultGrace) + cancelSlack
	if c := spec.Checkpoint; c != nil && t.Room == muster.Preempted && t.Row.State != muster.Cancelling {
		d = c.Grace.Or(spec.Kill.Grace.Or(defaultGrace)) + saveSlack
	}
	return d
}
