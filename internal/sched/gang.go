package sched

import (
	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/sched/gang"
	"github.com/muster-dev/muster/internal/sched/queue"
	"github.com/muster-dev/muster/internal/sched/retry"
)

// enqueueGang puts a gang into the queue if all members are queued and their backoffs are
// over, and sets its timer.
func (s *State) enqueueGang(now muster.Time, g *group) {
	if !g.item.Queued() && g.row.Counts[muster.Queued] == int64(g.row.Size) && g.notBefore() <= now {
		g.item.Num = g.row.First
		s.queue.Add(&g.item, g.job.queuePriority(), g.job.project, s.shapeOf(g))
	}
	s.armGroup(g)
}

func (s *State) gangDue(now muster.Time, g *group) {
	for _, t := range g.tasks {
		t.avoid = t.avoid.Active(now)
	}
	if at := g.queueDeadline(); g.item.Queued() && at > 0 && at <= now {
		s.queue.Remove(&g.item)
		for _, t := range g.sortedTasks() {
			t.row.Reason, t.row.Message, t.row.FinishedAt = muster.QueueTimeout, queuedTooLong(g), now
			s.setState(now, t, muster.TimedOut)
		}
		s.transitionRest(now, g, muster.TimedOut, muster.QueueTimeout, queuedTooLong(g))
	}
	s.enqueueGang(now, g)
}

// placeGang assigns all members of a gang at once, if there is room for them.
func (s *State) placeGang(now muster.Time, g *group) queue.Outcome {
	var avoid queue.AvoidList
	for _, t := range g.tasks {
		avoid = append(avoid, t.avoid.Active(now)...)
	}
	fits, onlyAvoided := s.queue.PackGang(now, &g.item, avoid.Has)
	switch {
	case onlyAvoided:
		return queue.Skipped
	case fits == nil:
		return queue.Blocked
	}
	s.queue.Remove(&g.item)
	for g.unmaterialized() > 0 {
		s.materialize(g, g.row.Materialized)
	}
	first := g.tasks[0].attempt()
	first.N++
	membership := muster.Membership{Size: g.row.Size, Master: gang.PickMaster(fits), Port: gang.MasterPort(first)}
	for _, r := range fits {
		i, _ := s.find(r.Usage.Worker.ID)
		for range r.Members {
			member := membership
			s.assign(now, g.tasks[membership.Rank], s.workers[i], g.shape.Need.WithVendor(r.Vendor), &member)
			membership.Rank++
		}
	}
	s.armGroup(g)
	return queue.Placed
}

// endMember ends the current attempt of a gang's member, and decides about the others.
func (s *State) endMember(now muster.Time, t *task, e retry.End) {
	g := t.group
	unreachable := ""
	for _, m := range g.sortedTasks() {
		if m != t && m.worker != nil && !m.worker.reachable() {
			unreachable = m.worker.row.Name
		}
	}
	v, action := gang.Decide(&t.row, g.memberCounts(t), unreachable, g.spec(), e, s.crashLimit(t, &e))
	if v.State == muster.Running {
		s.release(now, t)
		t.recordRuntime(e.At)
		t.row.Grant, t.stopBy, t.preemptReason = nil, 0, muster.NoReason
		if t.row.State == muster.Assigned {
			s.setState(now, t, muster.Running)
		}
		s.armTask(t)
		s.changedTask(t)
		return
	}
	message := gang.FailMessage(&t.row, t.element(), &e)
	s.applyDecision(now, t, e, v)
	othersDecision := retry.Decision{State: muster.Cancelled, Reason: muster.GangMember, Message: message, Retried: v.Retried, Crashes: v.Crashes}
	switch action {
	case gang.None:
	case gang.SucceedOthers:
		for _, m := range g.sortedTasks() {
			if m != t {
				m.row.FinishedAt = e.At
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
func (s *State) stopOthers(now muster.Time, g *group, v retry.Decision) {
	for _, m := range g.sortedTasks() {
		switch {
		case m.awaitingGang():
			s.applyDecision(now, m, retry.End{Outcome: muster.AttemptSucceeded, Reason: muster.GangMember, Message: v.Message, At: now}, v)
		case m.worker != nil:
			m.row.Retries += v.Retried
			m.row.Crashes += v.Crashes
			m.row.Message = v.Message
			s.changedTask(m)
			s.preempt(now, m, muster.GangMember)
		}
	}
}

// resumeGang queues a restored gang, or continues to stop a broken one.
func (s *State) resumeGang(now muster.Time, g *group) {
	n := g.memberCounts(nil)
	for _, t := range g.sortedTasks() {
		if n.Broken() && t.worker != nil && t.row.State != muster.Cancelling {
			t.preemptReason = muster.GangMember
			t.stopBy = now.Add(t.stopTimeout())
		}
		s.armTask(t)
	}
	s.enqueueGang(now, g)
}
