package sched

import (
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/sched/queue"
)

// Fixed timeouts and limits.
const (
	goneAfter       = muster.Duration(time.Hour)        // an unreachable worker without tasks counts as gone
	minAvoid        = muster.Duration(10 * time.Second) // a task avoids a worker that rejected or failed it
	maxAvoid        = muster.Duration(10 * time.Minute) // at most, while other workers could run the task
	maxRejections   = 10                                // in a row; more count as a crash
	minCrashWorkers = 3                                 // workers on which a task must fail before it fails for good, if there are as many
)

// NextTick returns when the next Tick is due, and 0 if nothing is pending.
func (s *State) NextTick() muster.Time {
	return queue.Earlier(queue.Earlier(s.timers.Next(), s.queue.NextTimeout()), s.progressFlushAt)
}

func (s *State) tick(now muster.Time) {
	for due := s.timers.PopDue(now); due != nil; due = s.timers.PopDue(now) {
		switch subject := due.(type) {
		case *task:
			s.taskDue(now, subject)
		case *group:
			s.groupDue(now, subject)
		case *worker:
			s.workerDue(now, subject)
		}
	}
	if s.progressFlushAt != 0 && s.progressFlushAt <= now {
		s.saveProgress()
	}
	s.queue.Expire(now)
}

// armTask sets the timer of t according to its state.
func (s *State) armTask(t *task) { s.timers.Arm(&t.Timer, t.Due()) }

func (s *State) taskDue(now muster.Time, t *task) {
	switch t.Row.State {
	case muster.Queued:
		if !t.Item.Queued() {
			s.enqueue(t)
		}
		t.Avoid = t.Avoid.Active(now)
		if at := t.QueueDeadline(); at > 0 && at <= now {
			s.queue.Remove(&t.Item)
			t.Row.Reason, t.Row.Message = muster.QueueTimeout, queuedTooLong(t.Group)
			t.Row.FinishedAt = now
			s.setState(now, t, muster.TimedOut)
		}
	case muster.Assigned, muster.Running, muster.Cancelling:
		switch at := t.LeaseExpiry(); {
		case at > 0 && at <= now:
			s.expireLease(now, t)
		case t.StopBy > 0 && t.StopBy <= now && (at == 0 || t.Row.State == muster.Cancelling):
			s.abandonAttempt(now, t)
		}
	default:
	}
	s.armTask(t)
}

// armGroup sets the timer of the group's unmaterialized elements, or of the gang.
func (s *State) armGroup(g *group) {
	s.timers.Arm(&g.Timer, g.Due())
}

func (s *State) groupDue(now muster.Time, g *group) {
	if g.Gang() {
		s.gangDue(now, g)
		return
	}
	if q := g.Spec().QueueTimeout; g.Row.UnmaterializedState == muster.Queued && g.Row.UnmaterializedSince.Add(q) <= now {
		s.transitionRest(now, g, muster.TimedOut, muster.QueueTimeout, queuedTooLong(g))
	}
	s.armGroup(g)
}

func queuedTooLong(g *group) string {
	return "not started within its queue timeout of " + g.Spec().QueueTimeout.String()
}

// armWorker sets the worker's timer: the heartbeat timeout, goneAfter, its deadline,
// or the next change of its health, whichever is first.
func (s *State) armWorker(now muster.Time, w *worker) {
	var at muster.Time
	switch {
	case w.Gone:
	case w.Reachable():
		at = w.Seen.Add(s.cfg.HeartbeatTimeout)
	case len(w.Held) == 0:
		at = w.Seen.Add(goneAfter)
	}
	if !w.Evicting {
		at = queue.Earlier(at, w.Row.Deadline)
	}
	if !w.Gone {
		at = queue.Earlier(at, w.Health.NextChange(now))
	}
	s.timers.Arm(&w.Timer, at)
}

func (s *State) workerDue(now muster.Time, w *worker) {
	if at := w.Row.Deadline; at > 0 && at <= now && !w.Evicting {
		s.onDeadline(now, w)
	}
	w.Health.Advance(now)
	s.onHealthChange(now, w)
	switch {
	case w.Gone:
	case w.Reachable():
		if w.Seen.Add(s.cfg.HeartbeatTimeout) <= now {
			s.markUnreachable(now, w)
		}
	case len(w.Held) == 0 && w.Seen.Add(goneAfter) <= now:
		s.markGone(now, w)
	}
	s.armWorker(now, w)
}

// Timeouts where a spec sets none, and what is added to those of a spec.
const (
	defaultLease = muster.Duration(10 * time.Minute) // disconnect.grace
	defaultGrace = muster.Duration(10 * time.Second) // kill.grace
	cancelSlack  = muster.Duration(30 * time.Second) // added to kill.grace, for a stopped task's report
	saveSlack    = muster.Duration(5 * time.Minute)  // added to checkpoint.grace, for the upload and the report
)

// TimerKey puts workers before tasks and groups.
func (w *worker) TimerKey() queue.TimerKey { return queue.TimerKey{Name: string(w.Row.ID)} }

// TimerKey orders tasks by job and number.
func (t *task) TimerKey() queue.TimerKey {
	return queue.TimerKey{Sort: 1, Job: t.Row.ID.Job, Num: t.Row.ID.Num}
}

// TimerKey puts the groups of a job after its tasks.
func (g *group) TimerKey() queue.TimerKey {
	return queue.TimerKey{Sort: 1, Job: g.Row.Job, Num: muster.MaxTasks + g.Row.Index}
}

// Due returns the next time at which t changes without an event, or 0.
func (t *task) Due() muster.Time {
	switch t.Row.State {
	case muster.Queued:
		if t.Group.Gang() {
			return 0 // the gang has its own timer
		}
		if !t.Item.Queued() {
			return t.Row.NotBefore
		}
		return queue.Earlier(t.QueueDeadline(), t.Avoid.NextExpiry())
	case muster.Assigned, muster.Running:
		if t.AwaitingGang() {
			return 0
		}
		if at := t.LeaseExpiry(); at > 0 {
			return at // it may still run there: the stop waits until the worker reconnects
		}
		return t.StopBy
	case muster.Cancelling:
		return queue.Earlier(t.StopBy, t.LeaseExpiry())
	default:
		return 0
	}
}

// QueueDeadline returns when a queued task times out, or 0.
func (t *task) QueueDeadline() muster.Time {
	if q := t.Group.Spec().QueueTimeout; q > 0 {
		return max(t.Row.QueuedAt, t.Row.NotBefore).Add(q)
	}
	return 0
}

// LeaseExpiry returns when the current attempt is lost because its worker is unreachable,
// or 0 while the worker is reachable.
func (t *task) LeaseExpiry() muster.Time {
	if t.Worker.Reachable() {
		return 0
	}
	return t.Worker.Seen.Add(t.Group.Spec().Disconnect.Grace.Or(defaultLease))
}

// Due returns the next time at which the group's unmaterialized elements, or the gang,
// change without an event, or 0.
func (g *group) Due() muster.Time {
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
func (t *task) StopTimeout() muster.Duration {
	spec := t.Group.Spec()
	d := spec.Kill.Grace.Or(defaultGrace) + cancelSlack
	if c := spec.Checkpoint; c != nil && t.PreemptReason == muster.Preempted && t.Row.State != muster.Cancelling {
		d = c.Grace.Or(spec.Kill.Grace.Or(defaultGrace)) + saveSlack
	}
	return d
}
