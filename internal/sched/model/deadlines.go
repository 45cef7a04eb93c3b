package model

import (
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/sched/heap"
)

// Timeouts where a spec sets none, and what is added to those of a spec.
const (
	DefaultLease = muster.Duration(10 * time.Minute) // disconnect.grace
	defaultGrace = muster.Duration(10 * time.Second) // kill.grace
	cancelSlack  = muster.Duration(30 * time.Second) // added to kill.grace, for a stopped task's report
	saveSlack    = muster.Duration(5 * time.Minute)  // added to checkpoint.grace, for the upload and the report
)

// TimerKey puts workers before tasks and groups.
func (w *Worker) TimerKey() heap.TimerKey { return heap.TimerKey{Name: string(w.Row.ID)} }

// TimerKey orders tasks by job and number.
func (t *Task) TimerKey() heap.TimerKey {
	return heap.TimerKey{Sort: 1, Job: t.Row.ID.Job, Num: t.Row.ID.Num}
}

// TimerKey puts the groups of a job after its tasks.
func (g *Group) TimerKey() heap.TimerKey {
	return heap.TimerKey{Sort: 1, Job: g.Row.Job, Num: muster.MaxTasks + g.Row.Index}
}

// Due returns the next time at which t changes without an event, or 0.
func (t *Task) Due() muster.Time {
	switch t.Row.State {
	case muster.Queued:
		if t.Group.Gang() {
			return 0 // the gang has its own timer
		}
		if !t.Item.Queued() {
			return t.Row.NotBefore
		}
		return heap.Earlier(t.QueueDeadline(), t.Avoid.NextExpiry())
	case muster.Assigned, muster.Running:
		if t.AwaitingGang() {
			return 0
		}
		if at := t.LeaseExpiry(); at > 0 {
			return at // it may still run there: the stop waits until the worker reconnects
		}
		return t.StopBy
	case muster.Cancelling:
		return heap.Earlier(t.StopBy, t.LeaseExpiry())
	default:
		return 0
	}
}

// QueueDeadline returns when a queued task times out, or 0.
func (t *Task) QueueDeadline() muster.Time {
	if q := t.Group.Spec().QueueTimeout; q > 0 {
		return max(t.Row.QueuedAt, t.Row.NotBefore).Add(q)
	}
	return 0
}

// LeaseExpiry returns when the current attempt is lost because its worker is unreachable,
// or 0 while the worker is reachable.
func (t *Task) LeaseExpiry() muster.Time {
	if t.Worker.Reachable() {
		return 0
	}
	return t.Worker.Seen.Add(t.Group.Spec().Disconnect.Grace.Or(DefaultLease))
}

// Due returns the next time at which the group's unmaterialized elements, or the gang,
// change without an event, or 0.
func (g *Group) Due() muster.Time {
	if g.Gang() {
		return g.gangDue()
	}
	if q := g.Spec().QueueTimeout; q > 0 && g.Row.UnmaterializedState == muster.Queued && g.Unmaterialized() > 0 {
		return g.Row.UnmaterializedSince.Add(q)
	}
	return 0
}

// StopTimeout returns how long a stopped task may take until its report arrives. A
// preempted one has the time to save a checkpoint, and its worker to upload it.
func (t *Task) StopTimeout() muster.Duration {
	spec := t.Group.Spec()
	d := spec.Kill.Grace.Or(defaultGrace) + cancelSlack
	if c := spec.Checkpoint; c != nil && t.PreemptReason == muster.Preempted && t.Row.State != muster.Cancelling {
		d = c.Grace.Or(spec.Kill.Grace.Or(defaultGrace)) + saveSlack
	}
	return d
}
