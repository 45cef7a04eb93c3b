package sched

import (
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/sched/heap"
)

// What the scheduler waits for without being told by its Config.
const (
	goneAfter     = muster.Duration(time.Hour)        // an unreachable worker that holds nothing
	shunnedFor    = muster.Duration(10 * time.Second) // a worker is not offered again what it rejected, or lacked what it takes for
	cancelSlack   = muster.Duration(30 * time.Second) // beyond kill.grace, for a stopped task's report
	saveSlack     = muster.Duration(5 * time.Minute)  // beyond checkpoint.grace, also for what it saved to come here
	defaultGrace  = muster.Duration(10 * time.Second) // kill.grace
	defaultLease  = muster.Duration(10 * time.Minute) // disconnect.grace
	mostRejection = 10                                // in a row; more count as a crash
)

// Turn orders what is due at the same time: workers, then tasks and groups by job.
func (w *worker) Turn() heap.Turn { return heap.Turn{Name: string(w.row.ID)} }

// Turn puts the tasks of a job in the order of their numbers.
func (t *task) Turn() heap.Turn { return heap.Turn{Sort: 1, Job: t.row.ID.Job, Num: t.row.ID.Num} }

// Turn puts the groups of a job after its tasks.
func (g *group) Turn() heap.Turn {
	return heap.Turn{Sort: 1, Job: g.row.Job, Num: muster.MaxArray + g.row.Index}
}

// Wake returns when the next Tick is due, and 0 if nothing is pending.
func (s *State) Wake() muster.Time { return heap.Earlier(s.timers.Next(), s.queue.Due()) }

func (s *State) tick(now muster.Time) {
	for due := s.timers.Due(now); due != nil; due = s.timers.Due(now) {
		switch of := due.(type) {
		case *task:
			s.taskDue(now, of)
		case *group:
			s.groupDue(now, of)
		case *worker:
			s.workerDue(now, of)
		}
	}
	s.queue.Pass(now)
}

// armTask sets the timer of t by its state.
func (s *State) armTask(t *task) { s.timers.Arm(&t.timer, t.due()) }

// due returns the next time at which t changes without an event, or 0.
func (t *task) due() muster.Time {
	switch t.row.State {
	case muster.Queued:
		if t.group.gang() {
			return 0 // the gang has a timer of its own
		}
		if !t.item.Queued() {
			return t.row.NotBefore
		}
		return heap.Earlier(t.deadline(), t.avoid.Next())
	case muster.Assigned, muster.Running:
		if t.done() {
			return 0
		}
		if at := t.lease(); at > 0 {
			return at // it may run there still: to make room can wait until the worker hears of it
		}
		return t.stopBy
	case muster.Cancelling:
		return heap.Earlier(t.stopBy, t.lease())
	default:
		return 0
	}
}

// deadline returns when a queued task has waited for too long, or 0.
func (t *task) deadline() muster.Time {
	if q := t.group.spec().QueueTimeout; q > 0 {
		return max(t.row.QueuedAt, t.row.NotBefore).Add(q)
	}
	return 0
}

// lease returns when the current attempt is given up because its worker is away,
// or 0 while the worker is there.
func (t *task) lease() muster.Time {
	if t.worker.reachable() {
		return 0
	}
	return t.worker.seen.Add(t.group.spec().Disconnect.Grace.Or(defaultLease))
}

func (s *State) taskDue(now muster.Time, t *task) {
	switch t.row.State {
	case muster.Queued:
		if !t.item.Queued() {
			s.enqueue(t)
		}
		t.avoid = t.avoid.Now(now)
		if at := t.deadline(); at > 0 && at <= now {
			s.queue.Remove(&t.item)
			t.row.Reason, t.row.Message = muster.QueueTimeout, queuedTooLong(t.group)
			t.row.FinishedAt = now
			s.set(now, t, muster.TimedOut)
		}
	case muster.Assigned, muster.Running, muster.Cancelling:
		switch at := t.lease(); {
		case at > 0 && at <= now:
			s.expire(now, t)
		case t.stopBy > 0 && t.stopBy <= now && (at == 0 || t.row.State == muster.Cancelling):
			s.giveUp(now, t)
		}
	default:
	}
	s.armTask(t)
}

// armGroup sets the timer of the group's rest, or of the gang.
func (s *State) armGroup(g *group) {
	var at muster.Time
	if g.gang() {
		at = g.gangAt()
	} else if q := g.spec().QueueTimeout; q > 0 && g.row.Rest == muster.Queued && g.rest() > 0 {
		at = g.row.RestAt.Add(q)
	}
	s.timers.Arm(&g.timer, at)
}

func (s *State) groupDue(now muster.Time, g *group) {
	if g.gang() {
		s.gangDue(now, g)
		return
	}
	if q := g.spec().QueueTimeout; g.row.Rest == muster.Queued && g.row.RestAt.Add(q) <= now {
		s.moveRest(now, g, muster.TimedOut, muster.QueueTimeout, queuedTooLong(g))
	}
	s.armGroup(g)
}

func queuedTooLong(g *group) string {
	return "not started within its queue timeout of " + g.spec().QueueTimeout.String()
}

// armWorker sets the worker's timer: for its silence, its being away for good, or
// its deadline.
func (s *State) armWorker(w *worker) {
	var at muster.Time
	switch {
	case w.gone:
	case w.reachable():
		at = w.seen.Add(s.cfg.Silent)
	case len(w.held) == 0:
		at = w.seen.Add(goneAfter)
	}
	if !w.clearing {
		at = heap.Earlier(at, w.row.Deadline)
	}
	s.timers.Arm(&w.timer, at)
}

func (s *State) workerDue(now muster.Time, w *worker) {
	if at := w.row.Deadline; at > 0 && at <= now && !w.clearing {
		s.deadline(now, w)
	}
	switch {
	case w.gone:
	case w.reachable():
		if w.seen.Add(s.cfg.Silent) <= now {
			s.away(now, w)
		}
	case len(w.held) == 0 && w.seen.Add(goneAfter) <= now:
		s.goes(now, w)
	}
	s.armWorker(w)
}
