package sched

import (
	"cmp"
	"time"

	"github.com/muster-dev/muster"
)

// What the scheduler waits for without being told by its Config.
const (
	goneAfter     = muster.Duration(time.Hour)        // an unreachable worker that holds nothing
	rejectedFor   = muster.Duration(10 * time.Second) // a worker is not offered again what it rejected
	cancelSlack   = muster.Duration(30 * time.Second) // beyond kill.grace, for a stopped task's report
	saveSlack     = muster.Duration(5 * time.Minute)  // beyond checkpoint.grace, also for what it saved to come here
	defaultGrace  = muster.Duration(10 * time.Second) // kill.grace
	defaultLease  = muster.Duration(10 * time.Minute) // disconnect.grace
	mostRejection = 10                                // in a row; more count as a crash
)

// timer is when something has to be looked at again. Exactly one of task, group
// and worker is set.
type timer struct {
	at     muster.Time
	seat   int
	task   *task
	group  *group
	worker *worker
}

func (t *timer) Seat() *int { return &t.seat }

func (t *timer) Before(o *timer) bool {
	if t.at != o.at {
		return t.at < o.at
	}
	switch {
	case t.worker != nil && o.worker != nil:
		return byID(t.worker, o.worker) < 0
	case t.worker != nil || o.worker != nil:
		return t.worker != nil
	}
	tj, tn, to := t.subject()
	oj, on, oo := o.subject()
	return cmp.Or(cmp.Compare(tj, oj), cmp.Compare(to, oo), cmp.Compare(tn, on)) < 0
}

// subject orders timers of tasks and groups: job, then tasks before groups.
func (t *timer) subject() (job muster.JobID, num, kind int) {
	if t.task != nil {
		return t.task.row.ID.Job, t.task.row.ID.Num, 0
	}
	return t.group.row.Job, t.group.row.Index, 1
}

// arm sets t to go off at the given time, and disarms it if that is 0.
func (s *State) arm(t *timer, at muster.Time) {
	switch {
	case at == 0 && t.seat > 0:
		s.timers.Remove(t)
	case at == 0:
	case t.seat == 0:
		t.at = at
		s.timers.Push(t)
	case t.at != at:
		t.at = at
		s.timers.Fix(t)
	}
}

// Wake returns when the next Tick is due, and 0 if nothing is pending.
func (s *State) Wake() muster.Time {
	if len(s.timers) == 0 {
		return s.queue.Due()
	}
	return earlier(s.timers[0].at, s.queue.Due())
}

func (s *State) tick(now muster.Time) {
	for len(s.timers) > 0 && s.timers[0].at <= now {
		t := s.timers[0]
		s.timers.Remove(t)
		switch {
		case t.task != nil:
			s.taskDue(now, t.task)
		case t.group != nil:
			s.groupDue(now, t.group)
		default:
			s.workerDue(now, t.worker)
		}
	}
	s.queue.Pass(now)
}

// armTask sets the timer of t by its state.
func (s *State) armTask(t *task) { s.arm(&t.timer, t.due()) }

// due returns the next time at which t changes without an event, or 0.
func (t *task) due() muster.Time {
	switch t.row.State {
	case muster.Queued:
		if !t.item.Queued() {
			return t.row.NotBefore
		}
		at := t.deadline()
		for _, a := range t.avoid {
			at = earlier(at, a.until)
		}
		return at
	case muster.Assigned, muster.Running:
		if at := t.lease(); at > 0 {
			return at // it may run there still: to make room can wait until the worker hears of it
		}
		return t.stopBy
	case muster.Cancelling:
		return earlier(t.stopBy, t.lease())
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
	return t.worker.seen.Add(orDefault(t.group.spec().Disconnect.Grace, defaultLease))
}

func (s *State) taskDue(now muster.Time, t *task) {
	switch t.row.State {
	case muster.Queued:
		if !t.item.Queued() {
			s.enqueue(t)
		}
		t.avoid = stillAvoided(t.avoid, now)
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

func stillAvoided(list []avoidance, now muster.Time) []avoidance {
	var kept []avoidance
	for _, a := range list {
		if a.until > now {
			kept = append(kept, a)
		}
	}
	return kept
}

// armGroup sets the timer of the group's rest.
func (s *State) armGroup(g *group) {
	var at muster.Time
	if q := g.spec().QueueTimeout; q > 0 && g.row.Rest == muster.Queued && g.rest() > 0 {
		at = g.row.RestAt.Add(q)
	}
	s.arm(&g.timer, at)
}

func (s *State) groupDue(now muster.Time, g *group) {
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
		at = earlier(at, w.row.Deadline)
	}
	s.arm(&w.timer, at)
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

// earlier returns the earlier of two times, where 0 is never.
func earlier(a, b muster.Time) muster.Time {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

func orDefault(d, otherwise muster.Duration) muster.Duration {
	if d > 0 {
		return d
	}
	return otherwise
}
