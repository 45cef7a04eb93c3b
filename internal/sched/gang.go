package sched

import (
	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/sched/gang"
	"github.com/muster-dev/muster/internal/sched/heap"
	"github.com/muster-dev/muster/internal/sched/judge"
	"github.com/muster-dev/muster/internal/sched/queue"
)

// gang reports whether the group's tasks start together or not at all. They stand
// in the queue as one: under the group's item, whether they have rows or not.
func (g *group) gang() bool { return g.job.row.Spec.Tasks[g.row.Index].Gang != nil }

// done reports whether the task is a gang's member that waits for the others.
func (t *task) done() bool { return t.group.gang() && gang.Done(&t.row) }

// standing counts the gang's members with rows, but for one of them.
func (g *group) standing(but *task) (n gang.Standing) {
	for _, t := range g.tasks {
		if t != but {
			n.Count(&t.row)
		}
	}
	return n
}

// lineUp puts a gang into the queue if all of it is queued and no pause goes on, and
// sets its timer.
func (s *State) lineUp(now muster.Time, g *group) {
	if !g.item.Queued() && g.row.Counts[muster.Queued] == int64(g.row.Size) && g.notBefore() <= now {
		g.item.Num = g.row.First
		s.queue.Add(&g.item, g.job.row.Priority, g.job.project, s.shapeOf(g))
	}
	s.armGroup(g)
}

// notBefore returns when the pauses of all members are past.
func (g *group) notBefore() (at muster.Time) {
	for _, t := range g.tasks {
		at = max(at, t.row.NotBefore)
	}
	return at
}

// gangAt returns the next time at which a gang changes without an event and that is
// no member's own, or 0.
func (g *group) gangAt() (at muster.Time) {
	if g.row.Counts[muster.Queued] < int64(g.row.Size) {
		return 0
	}
	if !g.item.Queued() {
		return g.notBefore()
	}
	for _, t := range g.tasks {
		at = heap.Earlier(at, t.avoid.Next())
	}
	return heap.Earlier(at, g.gangDeadline())
}

// gangDeadline returns when a gang has been queued for too long, or 0.
func (g *group) gangDeadline() muster.Time {
	q := g.spec().QueueTimeout
	if q <= 0 {
		return 0
	}
	since := g.notBefore()
	if g.rest() > 0 {
		since = g.row.RestAt
	}
	for _, t := range g.tasks {
		since = max(since, t.row.QueuedAt)
	}
	return since.Add(q)
}

func (s *State) gangDue(now muster.Time, g *group) {
	for _, t := range g.tasks {
		t.avoid = t.avoid.Now(now)
	}
	if at := g.gangDeadline(); g.item.Queued() && at > 0 && at <= now {
		s.queue.Remove(&g.item)
		for _, t := range g.elements() {
			t.row.Reason, t.row.Message, t.row.FinishedAt = muster.QueueTimeout, queuedTooLong(g), now
			s.set(now, t, muster.TimedOut)
		}
		s.moveRest(now, g, muster.TimedOut, muster.QueueTimeout, queuedTooLong(g))
	}
	s.lineUp(now, g)
}

// tryGang assigns all members of a gang at once, if there is room for them.
func (s *State) tryGang(now muster.Time, g *group) queue.Outcome {
	var avoid queue.Shunned
	for _, t := range g.tasks {
		avoid = append(avoid, t.avoid.Now(now)...)
	}
	rooms, shy := s.queue.Gather(now, &g.item, avoid.Has)
	switch {
	case shy:
		return queue.Aside
	case rooms == nil:
		return queue.Blocked
	}
	s.queue.Remove(&g.item)
	for g.rest() > 0 {
		s.single(g, g.row.Next)
	}
	first := g.tasks[0].attempt()
	first.N++
	seat := gang.Seat{Size: g.row.Size, Master: gang.Master(rooms), Port: gang.Port(first)}
	for _, r := range rooms {
		i, _ := s.find(r.Book.Worker.ID)
		for range r.Members {
			own := seat
			s.assign(now, g.tasks[seat.Rank], s.order[i], g.shape.Need.Of(r.Vendor), &own)
			seat.Rank++
		}
	}
	s.armGroup(g)
	return queue.Placed
}

// endMember ends the current attempt of a gang's member, and draws the conclusions
// for the others: see package gang.
func (s *State) endMember(now muster.Time, t *task, e judge.Ending) {
	g := t.group
	away := ""
	for _, m := range g.elements() {
		if m != t && m.worker != nil && !m.worker.reachable() {
			away = m.worker.row.Name
		}
	}
	v, fate := gang.Judge(&t.row, g.standing(t), away, g.spec(), e, s.cfg.CrashLimit)
	if v.To == muster.Running {
		s.release(t)
		t.ran(e.At)
		t.row.Grant, t.stopBy, t.room = nil, 0, muster.NoReason
		if t.row.State == muster.Assigned {
			s.set(now, t, muster.Running)
		}
		s.armTask(t)
		s.changedTask(t)
		return
	}
	why := gang.Fall(&t.row, t.element(), &e)
	s.conclude(now, t, e, v)
	other := judge.Verdict{To: muster.Cancelled, Reason: muster.GangMember, Message: why, Retried: v.Retried, Crashes: v.Crashes}
	switch fate {
	case gang.GoOn:
	case gang.Succeed:
		for _, m := range g.elements() {
			if m != t {
				m.row.FinishedAt = e.At
				s.set(now, m, muster.Succeeded)
			}
		}
	case gang.Restart:
		other.To = muster.Queued
		s.bringDown(now, g, other)
	case gang.End:
		s.bringDown(now, g, other)
	}
	s.lineUp(now, g)
}

// bringDown has the verdict on a member that ended for all others: at once for those
// that are done, and as soon as they have been stopped for those that run.
func (s *State) bringDown(now muster.Time, g *group, v judge.Verdict) {
	for _, m := range g.elements() {
		switch {
		case m.done():
			s.conclude(now, m, judge.Ending{Outcome: muster.AttemptSucceeded, Reason: muster.GangMember, Message: v.Message, At: now}, v)
		case m.worker != nil:
			m.row.Retried += v.Retried
			m.row.Crashes += v.Crashes
			m.row.Message = v.Message
			s.changedTask(m)
			s.oust(now, m, muster.GangMember)
		}
	}
}

// resumeGang queues what is restored of a gang, or goes on to bring it down.
func (s *State) resumeGang(now muster.Time, g *group) {
	n := g.standing(nil)
	for _, t := range g.elements() {
		if n.Broken() && t.worker != nil && t.row.State != muster.Cancelling {
			t.room = muster.GangMember
			t.stopBy = now.Add(t.patience())
		}
		s.armTask(t)
	}
	s.lineUp(now, g)
}

// checkGang holds what package gang promises.
func (g *group) checkGang() error {
	n := g.standing(nil)
	n.Open += g.rest()
	all := g.row.Counts[muster.Queued] == int64(g.row.Size)
	switch {
	case g.item.Queued() && !all:
		return broken("stage %q of job %s is a gang that is in the queue with %d members", g.row.Name, g.row.Job, g.row.Counts[muster.Queued])
	case all && !g.item.Queued() && !g.timer.Armed():
		return broken("stage %q of job %s is a gang that is neither in the queue nor waiting for a time", g.row.Name, g.row.Job)
	case g.row.Counts[muster.Succeeded] > 0 && !g.succeeded():
		return broken("stage %q of job %s is a gang of which %d have succeeded", g.row.Name, g.row.Job, g.row.Counts[muster.Succeeded])
	}
	for _, t := range g.tasks {
		switch {
		case t.item.Queued():
			return broken("task %s is in the queue without its gang", t.row.ID)
		case n.Broken() && t.worker != nil && t.room == muster.NoReason && t.row.State != muster.Cancelling, n.Broken() && t.done():
			return broken("task %s goes on though its gang does not", t.row.ID)
		}
	}
	return nil
}
