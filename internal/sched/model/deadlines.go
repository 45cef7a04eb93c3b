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

// TimerKey orders what is due at the same time: workers, then tasks and groups by job.
func (w *Worker) TimerKey() heap.TimerKey { return heap.TimerKey{Name: string(w.Row.ID)} }

// TimerKey puts the tasks of a job in the order of their numbers.
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
			return 0 // the gang has a timer of its own
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
			return at // it may run there still: to make room can wait until the worker hears of it
		}
		return t.StopBy
	case muster.Cancelling:
		return heap.Earlier(t.StopBy, t.LeaseExpiry())
	default:
		return 0
	}
}

// QueueDeadline returns when a queued task has waited for too long, or 0.
func (t *Task) QueueDeadline() muster.Time {
	if q := t.Group.Spec().QueueTimeout; q > 0 {
		return max(t.Row.QueuedAt, t.Row.NotBefore).Add(q)
	}
	return 0
}

// LeaseExpiry returns when the current attempt is given up because its worker is away,
// or 0 while the worker is there.
func (t *Task) LeaseExpiry() muster.Time {
	if t.Worker.Reachable() {
		return 0
	}
	return t.Worker.Seen.Add(t.Group.Spec().Disconnect.Grace.Or(DefaultLease))
}

// Due returns the next time at which the group's rest, or the gang, changes without an
// event, or 0.
func (g *Group) Due() muster.Time {
	if g.Gang() {
		return g.gangDue()
	}
	if q := g.Spec().QueueTimeout; q > 0 && g.Row.UnmaterializedState == muster.Queued && g.Unmaterialized() > 0 {
		return g.Row.UnmaterializedSince.Add(q)
	}
	return 0
}

// StopTimeout is how long a task that was told to end may take until its report is
// here. One that makes room has the time to save, and its worker to bring that here.
func (t *Task) StopTimeout() muster.Duration {
	spec := t.Group.Spec()
	d := spec.Kill.Grace.Or(defaultGrace) + cancelSlack
	if c := spec.Checkpoint; c != nil && t.PreemptReason == muster.Preempted && t.Row.State != muster.Cancelling {
		d = c.Grace.Or(spec.Kill.Grace.Or(defaultGrace)) + saveSlack
	}
	return d
}
