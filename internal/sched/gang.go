package sched

import (
	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/sched/gang"
	"github.com/muster-dev/muster/internal/sched/judge"
	"github.com/muster-dev/muster/internal/sched/model"
	"github.com/muster-dev/muster/internal/sched/queue"
)

// lineUp puts a gang into the queue if all of it is queued and no pause goes on, and
// sets its timer.
func (s *State) lineUp(now muster.Time, g *model.Group) {
	if !g.Item.Queued() && g.Row.Counts[muster.Queued] == int64(g.Row.Size) && g.NotBefore() <= now {
		g.Item.Num = g.Row.First
		s.queue.Add(&g.Item, g.Job.Row.Priority, g.Job.Project, s.shapeOf(g))
	}
	s.armGroup(g)
}

func (s *State) gangDue(now muster.Time, g *model.Group) {
	for _, t := range g.Tasks {
		t.Avoid = t.Avoid.Now(now)
	}
	if at := g.GangDeadline(); g.Item.Queued() && at > 0 && at <= now {
		s.queue.Remove(&g.Item)
		for _, t := range g.Elements() {
			t.Row.Reason, t.Row.Message, t.Row.FinishedAt = muster.QueueTimeout, queuedTooLong(g), now
			s.set(now, t, muster.TimedOut)
		}
		s.moveRest(now, g, muster.TimedOut, muster.QueueTimeout, queuedTooLong(g))
	}
	s.lineUp(now, g)
}

// tryGang assigns all members of a gang at once, if there is room for them.
func (s *State) tryGang(now muster.Time, g *model.Group) queue.Outcome {
	var avoid queue.Shunned
	for _, t := range g.Tasks {
		avoid = append(avoid, t.Avoid.Now(now)...)
	}
	rooms, shy := s.queue.Gather(now, &g.Item, avoid.Has)
	switch {
	case shy:
		return queue.Aside
	case rooms == nil:
		return queue.Blocked
	}
	s.queue.Remove(&g.Item)
	for g.Rest() > 0 {
		s.single(g, g.Row.Materialized)
	}
	first := g.Tasks[0].Attempt()
	first.N++
	seat := gang.Seat{Size: g.Row.Size, Master: gang.Master(rooms), Port: gang.Port(first)}
	for _, r := range rooms {
		i, _ := s.find(r.Book.Worker.ID)
		for range r.Members {
			own := seat
			s.assign(now, g.Tasks[seat.Rank], s.order[i], g.Shape.Need.Of(r.Vendor), &own)
			seat.Rank++
		}
	}
	s.armGroup(g)
	return queue.Placed
}

// endMember ends the current attempt of a gang's member, and draws the conclusions
// for the others: see package gang.
func (s *State) endMember(now muster.Time, t *model.Task, e judge.Ending) {
	g := t.Group
	away := ""
	for _, m := range g.Elements() {
		if m != t && m.Worker != nil && !m.Worker.Reachable() {
			away = m.Worker.Row.Name
		}
	}
	v, fate := gang.Judge(&t.Row, g.Standing(t), away, g.Spec(), e, s.crashLimit(t, &e))
	if v.To == muster.Running {
		s.release(now, t)
		t.Ran(e.At)
		t.Row.Grant, t.StopBy, t.Room = nil, 0, muster.NoReason
		if t.Row.State == muster.Assigned {
			s.set(now, t, muster.Running)
		}
		s.armTask(t)
		s.changedTask(t)
		return
	}
	why := gang.Fall(&t.Row, t.Element(), &e)
	s.conclude(now, t, e, v)
	other := judge.Verdict{To: muster.Cancelled, Reason: muster.GangMember, Message: why, Retried: v.Retried, Crashes: v.Crashes}
	switch fate {
	case gang.GoOn:
	case gang.Succeed:
		for _, m := range g.Elements() {
			if m != t {
				m.Row.FinishedAt = e.At
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
func (s *State) bringDown(now muster.Time, g *model.Group, v judge.Verdict) {
	for _, m := range g.Elements() {
		switch {
		case m.Done():
			s.conclude(now, m, judge.Ending{Outcome: muster.AttemptSucceeded, Reason: muster.GangMember, Message: v.Message, At: now}, v)
		case m.Worker != nil:
			m.Row.Retried += v.Retried
			m.Row.Crashes += v.Crashes
			m.Row.Message = v.Message
			s.changedTask(m)
			s.oust(now, m, muster.GangMember)
		}
	}
}

// resumeGang queues what is restored of a gang, or goes on to bring it down.
func (s *State) resumeGang(now muster.Time, g *model.Group) {
	n := g.Standing(nil)
	for _, t := range g.Elements() {
		if n.Broken() && t.Worker != nil && t.Row.State != muster.Cancelling {
			t.Room = muster.GangMember
			t.StopBy = now.Add(t.Patience())
		}
		s.armTask(t)
	}
	s.lineUp(now, g)
}
