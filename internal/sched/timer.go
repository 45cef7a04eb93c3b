package sched

import (
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/sched/heap"
	"github.com/muster-dev/muster/internal/sched/model"
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
	return heap.Earlier(heap.Earlier(s.timers.Next(), s.queue.NextTimeout()), s.progressFlushAt)
}

func (s *State) tick(now muster.Time) {
	for due := s.timers.PopDue(now); due != nil; due = s.timers.PopDue(now) {
		switch subject := due.(type) {
		case *model.Task:
			s.taskDue(now, subject)
		case *model.Group:
			s.groupDue(now, subject)
		case *model.Worker:
			s.workerDue(now, subject)
		}
	}
	if s.progressFlushAt != 0 && s.progressFlushAt <= now {
		s.saveProgress()
	}
	s.queue.Expire(now)
}

// armTask sets the timer of t according to its state.
func (s *State) armTask(t *model.Task) { s.timers.Arm(&t.Timer, t.Due()) }

func (s *State) taskDue(now muster.Time, t *model.Task) {
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
func (s *State) armGroup(g *model.Group) {
	s.timers.Arm(&g.Timer, g.Due())
}

func (s *State) groupDue(now muster.Time, g *model.Group) {
	if g.Gang() {
		s.gangDue(now, g)
		return
	}
	if q := g.Spec().QueueTimeout; g.Row.UnmaterializedState == muster.Queued && g.Row.UnmaterializedSince.Add(q) <= now {
		s.transitionRest(now, g, muster.TimedOut, muster.QueueTimeout, queuedTooLong(g))
	}
	s.armGroup(g)
}

func queuedTooLong(g *model.Group) string {
	return "not started within its queue timeout of " + g.Spec().QueueTimeout.String()
}

// armWorker sets the worker's timer: the heartbeat timeout, goneAfter, its deadline,
// or the next change of its health, whichever is first.
func (s *State) armWorker(now muster.Time, w *model.Worker) {
	var at muster.Time
	switch {
	case w.Gone:
	case w.Reachable():
		at = w.Seen.Add(s.cfg.HeartbeatTimeout)
	case len(w.Held) == 0:
		at = w.Seen.Add(goneAfter)
	}
	if !w.Evicting {
		at = heap.Earlier(at, w.Row.Deadline)
	}
	if !w.Gone {
		at = heap.Earlier(at, w.Health.NextChange(now))
	}
	s.timers.Arm(&w.Timer, at)
}

func (s *State) workerDue(now muster.Time, w *model.Worker) {
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
