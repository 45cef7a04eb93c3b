package sched

import (
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/sched/heap"
	"github.com/muster-dev/muster/internal/sched/model"
)

// What the scheduler waits for without being told by its Config.
const (
	goneAfter     = muster.Duration(time.Hour)        // an unreachable worker that holds nothing
	shunnedFor    = muster.Duration(10 * time.Second) // a worker is not offered again what it rejected, or lacked what it takes for
	longestShun   = muster.Duration(10 * time.Minute) // at most, while other workers could run the task
	mostRejection = 10                                // in a row; more count as a crash
	crashWorkers  = 3                                 // on so many workers a task must have failed before it is given up, if there are as many
)

// Wake returns when the next Tick is due, and 0 if nothing is pending.
func (s *State) Wake() muster.Time {
	return heap.Earlier(heap.Earlier(s.timers.Next(), s.queue.Due()), s.saveAt)
}

func (s *State) tick(now muster.Time) {
	for due := s.timers.Due(now); due != nil; due = s.timers.Due(now) {
		switch of := due.(type) {
		case *model.Task:
			s.taskDue(now, of)
		case *model.Group:
			s.groupDue(now, of)
		case *model.Worker:
			s.workerDue(now, of)
		}
	}
	if s.saveAt != 0 && s.saveAt <= now {
		s.saveProgress()
	}
	s.queue.Pass(now)
}

// armTask sets the timer of t by its state.
func (s *State) armTask(t *model.Task) { s.timers.Arm(&t.Timer, t.Due()) }

func (s *State) taskDue(now muster.Time, t *model.Task) {
	switch t.Row.State {
	case muster.Queued:
		if !t.Item.Queued() {
			s.enqueue(t)
		}
		t.Avoid = t.Avoid.Now(now)
		if at := t.Deadline(); at > 0 && at <= now {
			s.queue.Remove(&t.Item)
			t.Row.Reason, t.Row.Message = muster.QueueTimeout, queuedTooLong(t.Group)
			t.Row.FinishedAt = now
			s.set(now, t, muster.TimedOut)
		}
	case muster.Assigned, muster.Running, muster.Cancelling:
		switch at := t.Lease(); {
		case at > 0 && at <= now:
			s.expire(now, t)
		case t.StopBy > 0 && t.StopBy <= now && (at == 0 || t.Row.State == muster.Cancelling):
			s.giveUp(now, t)
		}
	default:
	}
	s.armTask(t)
}

// armGroup sets the timer of the group's rest, or of the gang.
func (s *State) armGroup(g *model.Group) {
	s.timers.Arm(&g.Timer, g.Due())
}

func (s *State) groupDue(now muster.Time, g *model.Group) {
	if g.Gang() {
		s.gangDue(now, g)
		return
	}
	if q := g.Spec().QueueTimeout; g.Row.UnmaterializedState == muster.Queued && g.Row.UnmaterializedSince.Add(q) <= now {
		s.moveRest(now, g, muster.TimedOut, muster.QueueTimeout, queuedTooLong(g))
	}
	s.armGroup(g)
}

func queuedTooLong(g *model.Group) string {
	return "not started within its queue timeout of " + g.Spec().QueueTimeout.String()
}

// armWorker sets the worker's timer: for its silence, its being away for good, its
// deadline, or what changes about its health.
func (s *State) armWorker(now muster.Time, w *model.Worker) {
	var at muster.Time
	switch {
	case w.Gone:
	case w.Reachable():
		at = w.Seen.Add(s.cfg.Silent)
	case len(w.Held) == 0:
		at = w.Seen.Add(goneAfter)
	}
	if !w.Clearing {
		at = heap.Earlier(at, w.Row.Deadline)
	}
	if !w.Gone {
		at = heap.Earlier(at, w.Health.Next(now))
	}
	s.timers.Arm(&w.Timer, at)
}

func (s *State) workerDue(now muster.Time, w *model.Worker) {
	if at := w.Row.Deadline; at > 0 && at <= now && !w.Clearing {
		s.deadline(now, w)
	}
	w.Health.Pass(now)
	s.judged(now, w)
	switch {
	case w.Gone:
	case w.Reachable():
		if w.Seen.Add(s.cfg.Silent) <= now {
			s.away(now, w)
		}
	case len(w.Held) == 0 && w.Seen.Add(goneAfter) <= now:
		s.goes(now, w)
	}
	s.armWorker(now, w)
}
