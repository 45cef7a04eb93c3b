package sched

import (
	"slices"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/sched/queue"
)

// Fixed timeouts and limits.
const (
	goneAfter       = muster.Duration(time.Hour)        // an unreachable worker without tasks counts as gone
	minAvoid        = muster.Duration(10 * time.Second) // a task avoids a worker that rejected or failed it
	maxAvoid        = muster.Duration(10 * time.Minute) // at most, while other workers could run the task
	finalAvoid      = muster.Duration(time.Hour)        // a task avoids a worker that would reject it again; its owner may restart it with another policy
	maxRejections   = 10                                // in a row; more count as a crash
	minCrashWorkers = 3                                 // workers on which a task must fail before it fails for good, if there are as many
)

// NextTick returns when the next Tick is due, and 0 if nothing is pending.
func (s *State) NextTick() muster.Time {
	if slices.ContainsFunc(s.lookups, func(t *task) bool { return t.lookup }) {
		return 1 // more than one batch looks up
	}
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
func (s *State) armTask(t *task) { s.timers.Arm(&t.timer, t.due()) }

func (s *State) taskDue(now muster.Time, t *task) {
	switch t.row.State {
	case muster.Queued:
		if !t.item.Queued() && !t.parked {
			s.enqueue(t)
		}
		t.avoid = t.avoid.Active(now)
		if at := t.queueDeadline(); at > 0 && at <= now {
			if t.item.Queued() {
				s.queue.Remove(&t.item)
			}
			t.row.Reason, t.row.Message = muster.QueueTimeout, queuedTooLong(t.group)
			t.row.FinishedAt = now
			s.setState(now, t, muster.TimedOut)
		}
	case muster.Assigned, muster.Running, muster.Cancelling:
		switch at := t.leaseExpiry(); {
		case at > 0 && at <= now:
			s.expireLease(now, t)
		case t.stopBy > 0 && t.stopBy <= now && (at == 0 || t.row.State == muster.Cancelling):
			s.abandonAttempt(now, t)
		}
	default:
	}
	s.armTask(t)
}

// armGroup sets the timer of the group's unmaterialized elements, or of the gang.
func (s *State) armGroup(g *group) {
	s.timers.Arm(&g.timer, g.due())
}

func (s *State) groupDue(now muster.Time, g *group) {
	if g.gang() {
		s.gangDue(now, g)
		return
	}
	if q := g.queueTimeout(); q > 0 && g.row.UnmaterializedState == muster.Queued && g.row.UnmaterializedSince.Add(q) <= now {
		s.transitionRest(now, g, muster.TimedOut, muster.QueueTimeout, queuedTooLong(g))
	}
	s.armGroup(g)
}

func queuedTooLong(g *group) string {
	return "not started within its queue timeout of " + g.spec().QueueTimeout.String()
}

// armWorker sets the worker's timer: the heartbeat timeout, goneAfter, its deadline,
// or the next change of its health, whichever is first.
func (s *State) armWorker(now muster.Time, w *worker) {
	var at muster.Time
	switch {
	case w.gone:
	case w.reachable():
		at = w.seen.Add(s.heartbeatTimeout(w))
	case len(w.held) == 0:
		at = w.seen.Add(goneAfter)
	}
	if !w.evicting {
		at = queue.Earlier(at, w.row.Deadline)
	}
	if !w.gone {
		at = queue.Earlier(at, w.health.NextChange(now))
	}
	s.timers.Arm(&w.timer, at)
}

// heartbeatTimeout returns how long a worker may be silent until it is unreachable.
func (s *State) heartbeatTimeout(w *worker) muster.Duration {
	return (maxMissedHeartbeats * w.row.Heartbeat).Or(s.cfg.HeartbeatTimeout)
}

func (s *State) workerDue(now muster.Time, w *worker) {
	if at := w.row.Deadline; at > 0 && at <= now && !w.evicting {
		s.onDeadline(now, w)
	}
	w.health.Advance(now)
	s.onHealthChange(now, w)
	switch {
	case w.gone:
	case w.reachable():
		if w.seen.Add(s.heartbeatTimeout(w)) <= now {
			s.markUnreachable(now, w)
		}
	case len(w.held) == 0 && w.seen.Add(goneAfter) <= now:
		s.markGone(now, w)
	}
	s.armWorker(now, w)
}

// What is added to the timeouts of a spec.
const (
	cancelSlack = muster.Duration(30 * time.Second) // to kill.grace, for a stopped task's report
	saveSlack   = muster.Duration(5 * time.Minute)  // to checkpoint.grace, for the upload and the report
)

// TimerKey puts workers before tasks and groups.
func (w *worker) TimerKey() queue.TimerKey { return queue.TimerKey{Name: string(w.row.ID)} }

// TimerKey orders tasks by job and number.
func (t *task) TimerKey() queue.TimerKey {
	return queue.TimerKey{Sort: 1, Job: t.row.ID.Job, Num: t.row.ID.Num}
}

// TimerKey puts the groups of a job after its tasks.
func (g *group) TimerKey() queue.TimerKey {
	return queue.TimerKey{Sort: 1, Job: g.row.Job, Num: muster.MaxTasks + g.row.Index}
}

// due returns the next time at which t changes without an event, or 0.
func (t *task) due() muster.Time {
	switch t.row.State {
	case muster.Queued:
		if t.group.gang() {
			return 0 // the gang has its own timer
		}
		if !t.item.Queued() && !t.parked {
			return t.row.NotBefore
		}
		return queue.Earlier(t.queueDeadline(), t.avoid.NextExpiry())
	case muster.Assigned, muster.Running:
		if t.awaitingGang() {
			return 0
		}
		if at := t.leaseExpiry(); at > 0 {
			return at // it may still run there: the stop waits until the worker reconnects
		}
		return t.stopBy
	case muster.Cancelling:
		return queue.Earlier(t.stopBy, t.leaseExpiry())
	default:
		return 0
	}
}

// queueTimeout returns how long a task may be queued; 0 means without end, as while its job is held.
func (g *group) queueTimeout() muster.Duration {
	if g.job.row.Held {
		return 0
	}
	return g.spec().QueueTimeout
}

// queueDeadline returns when a queued task times out, or 0.
func (t *task) queueDeadline() muster.Time {
	if q := t.group.queueTimeout(); q > 0 {
		return max(t.row.QueuedAt, t.row.NotBefore).Add(q)
	}
	return 0
}

// leaseExpiry returns when the current attempt is lost because its worker is unreachable,
// or 0 while the worker is reachable.
func (t *task) leaseExpiry() muster.Time {
	if t.worker.reachable() {
		return 0
	}
	return t.worker.seen.Add(t.group.spec().Disconnect.Grace.Or(muster.DefaultDisconnectGrace))
}

// due returns the next time at which the group's unmaterialized elements, or the gang,
// change without an event, or 0.
func (g *group) due() muster.Time {
	if g.gang() {
		return g.gangDue()
	}
	if q := g.queueTimeout(); q > 0 && g.row.UnmaterializedState == muster.Queued && g.unmaterialized() > 0 {
		return g.row.UnmaterializedSince.Add(q)
	}
	return 0
}

// stopTimeout returns how long a stopped task may take until its report arrives. A
// preempted one has the time to save a checkpoint, and its worker to upload it.
func (t *task) stopTimeout() muster.Duration {
	spec := t.group.spec()
	d := spec.Kill.Grace.Or(muster.DefaultKillGrace) + cancelSlack
	if c := spec.Checkpoint; c != nil && t.preemptReason == muster.Preempted && t.row.State != muster.Cancelling {
		d = c.Grace.Or(spec.Kill.Grace.Or(muster.DefaultKillGrace)) + saveSlack
	}
	return d
}
