package sched

import (
	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/sched/gang"
	"github.com/muster-dev/muster/internal/sched/judge"
	"github.com/muster-dev/muster/internal/sched/model"
	"github.com/muster-dev/muster/internal/sched/queue"
)

// enqueueGang puts a gang into the queue if all members are queued and their backoffs are
// over, and sets its timer.
func (s *State) enqueueGang(now muster.Time, g *model.Group) {
	if !g.Item.Queued() && g.Row.Counts[muster.Queued] == int64(g.Row.Size) && g.NotBefore() <= now {
		g.Item.Num = g.Row.First
		s.queue.Add(&g.Item, g.Job.Row.Priority, g.Job.Project, s.shapeOf(g))
	}
	s.armGroup(g)
}

func (s *State) gangDue(now muster.Time, g *model.Group) {
	for _, t := range g.Tasks {
		t.Avoid = t.Avoid.Active(now)
	}
	if at := g.QueueDeadline(); g.Item.Queued() && at > 0 && at <= now {
		s.queue.Remove(&g.Item)
		for _, t := range g.SortedTasks() {
			t.Row.Reason, t.Row.Message, t.Row.FinishedAt = muster.QueueTimeout, queuedTooLong(g), now
			s.setState(now, t, muster.TimedOut)
		}
		s.transitionRest(now, g, muster.TimedOut, muster.QueueTimeout, queuedTooLong(g))
	}
	s.enqueueGang(now, g)
}

// placeGang assigns all members of a gang at once, if there is room for them.
func (s *State) placeGang(now muster.Time, g *model.Group) queue.Outcome {
	var avoid queue.AvoidList
	for _, t := range g.Tasks {
		avoid = append(avoid, t.Avoid.Active(now)...)
	}
	fits, onlyAvoided := s.queue.PackGang(now, &g.Item, avoid.Has)
	switch {
	case onlyAvoided:
		return queue.Skipped
	case fits == nil:
		return queue.Blocked
	}
	s.queue.Remove(&g.Item)
	for g.Unmaterialized() > 0 {
		s.materialize(g, g.Row.Materialized)
	}
	first := g.Tasks[0].Attempt()
	first.N++
	membership := gang.Membership{Size: g.Row.Size, Master: gang.PickMaster(fits), Port: gang.Port(first)}
	for _, r := range fits {
		i, _ := s.find(r.Usage.Worker.ID)
		for range r.Members {
			member := membership
			s.assign(now, g.Tasks[membership.Rank], s.workers[i], g.Shape.Need.WithVendor(r.Vendor), &member)
			membership.Rank++
		}
	}
	s.armGroup(g)
	return queue.Placed
}

// endMember ends the current attempt of a gang's member, and decides about the others.
func (s *State) endMember(now muster.Time, t *model.Task, e judge.AttemptEnd) {
	g := t.Group
	unreachable := ""
	for _, m := range g.SortedTasks() {
		if m != t && m.Worker != nil && !m.Worker.Reachable() {
			unreachable = m.Worker.Row.Name
		}
	}
	v, action := gang.Decide(&t.Row, g.MemberCounts(t), unreachable, g.Spec(), e, s.crashLimit(t, &e))
	if v.State == muster.Running {
		s.release(now, t)
		t.RecordRuntime(e.At)
		t.Row.Grant, t.StopBy, t.PreemptReason = nil, 0, muster.NoReason
		if t.Row.State == muster.Assigned {
			s.setState(now, t, muster.Running)
		}
		s.armTask(t)
		s.changedTask(t)
		return
	}
	message := gang.FailMessage(&t.Row, t.Element(), &e)
	s.applyDecision(now, t, e, v)
	othersDecision := judge.Decision{State: muster.Cancelled, Reason: muster.GangMember, Message: message, Retried: v.Retried, Crashes: v.Crashes}
	switch action {
	case gang.NoAction:
	case gang.SucceedAll:
		for _, m := range g.SortedTasks() {
			if m != t {
				m.Row.FinishedAt = e.At
				s.setState(now, m, muster.Succeeded)
			}
		}
	case gang.RequeueOthers:
		othersDecision.State = muster.Queued
		s.stopOthers(now, g, othersDecision)
	case gang.CancelOthers:
		s.stopOthers(now, g, othersDecision)
	}
	s.enqueueGang(now, g)
}

// stopOthers applies the decision about a member that ended to all others: at once to those
// that are done, and to running ones when they have stopped.
func (s *State) stopOthers(now muster.Time, g *model.Group, v judge.Decision) {
	for _, m := range g.SortedTasks() {
		switch {
		case m.AwaitingGang():
			s.applyDecision(now, m, judge.AttemptEnd{Outcome: muster.AttemptSucceeded, Reason: muster.GangMember, Message: v.Message, At: now}, v)
		case m.Worker != nil:
			m.Row.Retried += v.Retried
			m.Row.Crashes += v.Crashes
			m.Row.Message = v.Message
			s.changedTask(m)
			s.preempt(now, m, muster.GangMember)
		}
	}
}

// resumeGang queues a restored gang, or continues to stop a broken one.
func (s *State) resumeGang(now muster.Time, g *model.Group) {
	n := g.MemberCounts(nil)
	for _, t := range g.SortedTasks() {
		if n.Broken() && t.Worker != nil && t.Row.State != muster.Cancelling {
			t.PreemptReason = muster.GangMember
			t.StopBy = now.Add(t.StopTimeout())
		}
		s.armTask(t)
	}
	s.enqueueGang(now, g)
}
