package sched

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/placement"
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
	membership := muster.Membership{Size: g.row.Size, Master: pickMaster(fits), Port: masterPort(first)}
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
	v, action := decideGang(&t.row, g.memberCounts(t), unreachable, g.spec(), e, s.crashLimit(t, &e))
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
	message := gangFailMessage(&t.row, t.element(), &e)
	s.applyDecision(now, t, e, v)
	othersDecision := retry.Decision{State: muster.Cancelled, Reason: muster.GangMember, Message: message, Retried: v.Retried, Crashes: v.Crashes}
	switch action {
	case noAction:
	case succeedAll:
		for _, m := range g.sortedTasks() {
			if m != t {
				m.row.FinishedAt = e.At
				s.setState(now, m, muster.Succeeded)
			}
		}
	case requeueOthers:
		othersDecision.State = muster.Queued
		s.stopOthers(now, g, othersDecision)
	case cancelOthers:
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
		if n.broken() && t.worker != nil && t.row.State != muster.Cancelling {
			t.preemptReason = muster.GangMember
			t.stopBy = now.Add(t.stopTimeout())
		}
		s.armTask(t)
	}
	s.enqueueGang(now, g)
}

// awaitingOthers reports whether a member is done and waits for the others.
func awaitingOthers(t *muster.Task) bool { return t.State == muster.Running && t.Grant == nil }

// memberCounts counts members.
type memberCounts struct {
	pending  int // waiting or queued
	held     int // by a worker
	awaiting int
	ended    int
}

// count adds a member.
func (s *memberCounts) count(t *muster.Task) {
	switch {
	case t.State.Final():
		s.ended++
	case awaitingOthers(t):
		s.awaiting++
	case t.State.HoldsResources():
		s.held++
	default:
		s.pending++
	}
}

// broken reports whether the gang must stop: some members run or are done, and others
// are pending or have ended.
func (s *memberCounts) broken() bool { return s.held+s.awaiting > 0 && s.pending+s.ended > 0 }

// gangAction is what happens to the others when a member's attempt has ended.
type gangAction int

// The actions.
const (
	noAction      gangAction = iota // they are stopping already, or this member is done
	succeedAll                      // all of them are done
	requeueOthers                   // they are stopped and queued
	cancelOthers                    // they are stopped and cancelled
)

// decideGang decides about t, a member whose attempt ended. unreachable is the name of
// another member's unreachable worker, or "". The state Running means that the member is
// done. Retries and Crashes count for every member.
func decideGang(t *muster.Task, others memberCounts, unreachable string, spec *muster.TaskSpec, e retry.End, crashLimit int) (retry.Decision, gangAction) {
	if t.State == muster.Cancelling {
		v := retry.Decide(t, spec, e, crashLimit)
		if v.State == muster.Succeeded {
			v = retry.Decision{State: muster.Cancelled, Reason: t.Reason, Message: "it succeeded, but its gang was cancelled"}
		}
		return v, noAction
	}
	switch {
	case others.ended > 0:
		return retry.Decision{State: muster.Cancelled, Reason: muster.GangMember, Message: cmp.Or(t.Message, "its gang has ended")}, noAction
	case others.pending > 0:
		return retry.Decision{State: muster.Queued, Reason: muster.GangMember, Message: cmp.Or(t.Message, "its gang restarts")}, noAction
	case e.Outcome == muster.AttemptSucceeded && others.held > 0:
		return retry.Decision{State: muster.Running}, noAction
	case e.Outcome == muster.AttemptSucceeded:
		return retry.Decide(t, spec, e, crashLimit), succeedAll
	}
	if unreachable != "" && e.Outcome == muster.AttemptFailed && !e.Reason.FleetFault() {
		// Members fail because of a lost one long before its lease expires.
		e.Message = fmt.Sprintf("it ended while worker %s of another member was unreachable (%s)", unreachable, cmp.Or(e.Message, string(e.Reason)))
		e.Reason = muster.WorkerLost
	}
	if spec.Gang.OnLoss == muster.GangEnd && isLoss(&e) {
		e.NoRetry = true
	}
	v := retry.Decide(t, spec, e, crashLimit)
	if e.NoRetry && v.State == muster.Queued {
		v = retry.Decision{State: muster.Failed, Reason: e.Reason, Message: e.Message}
	}
	if v.State == muster.Queued {
		return v, requeueOthers
	}
	return v, cancelOthers
}

// isLoss reports whether a member was lost, rather than preempted or never started.
func isLoss(e *retry.End) bool {
	switch {
	case e.Uncounted, e.Outcome == muster.AttemptRejected, e.Reason == muster.Preempted, e.Reason == muster.WorkerShutdown:
		return false
	default:
		return true
	}
}

// gangFailMessage returns why the others are stopped.
func gangFailMessage(t *muster.Task, rank int, e *retry.End) string {
	return fmt.Sprintf("member %s (rank %d) of its gang ended: %s", t.ID, rank, cmp.Or(e.Message, string(e.Reason), string(e.Outcome)))
}

// The range of ports on which masters listen.
const (
	firstPort = 20000
	portCount = 10000
)

// masterPort returns the master's port, where a is the attempt of rank 0. It differs between
// attempts, so that an occupied port is not retried.
func masterPort(a muster.AttemptID) int { return firstPort + int(retry.HashAttempt(a)%portCount) }

// pickMaster moves the worker with the most widely reachable address to the front: its
// first member is rank 0. It returns that address: loopback if all members are on one
// worker, else the worker's address, else its name.
func pickMaster(fits []placement.GangFit) string {
	const loopback = "127.0.0.1"
	if len(fits) == 1 {
		return loopback
	}
	best := 0
	for i := range fits {
		if addressScope(fits[i].Usage.Worker) > addressScope(fits[best].Usage.Worker) {
			best = i
		}
	}
	first := fits[best]
	copy(fits[1:best+1], fits[:best])
	fits[0] = first
	if w := first.Usage.Worker; w.Address != "" {
		return w.Address
	}
	return first.Usage.Worker.Name
}

// addressScope ranks how widely a worker's address is reachable.
func addressScope(w *muster.Worker) int {
	switch a := w.Address; {
	case a == "":
		return 0
	case a == "localhost", a == "::1", strings.HasPrefix(a, "127."):
		return 1
	default:
		return 2
	}
}
