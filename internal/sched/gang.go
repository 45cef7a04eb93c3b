package sched

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/placement"
	"github.com/muster-dev/muster/internal/sched/queue"
)

// enqueueGang puts a gang into the queue if all members are queued and their backoffs are
// over, and sets its timer.
func (s *State) enqueueGang(now muster.Time, g *group) {
	if !g.Item.Queued() && g.Row.Counts[muster.Queued] == int64(g.Row.Size) && g.NotBefore() <= now {
		g.Item.Num = g.Row.First
		s.queue.Add(&g.Item, g.Job.Row.Priority, g.Job.Project, s.shapeOf(g))
	}
	s.armGroup(g)
}

func (s *State) gangDue(now muster.Time, g *group) {
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
func (s *State) placeGang(now muster.Time, g *group) queue.Outcome {
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
	membership := Membership{Size: g.Row.Size, Master: pickMaster(fits), Port: masterPort(first)}
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
func (s *State) endMember(now muster.Time, t *task, e attemptEnd) {
	g := t.Group
	unreachable := ""
	for _, m := range g.SortedTasks() {
		if m != t && m.Worker != nil && !m.Worker.Reachable() {
			unreachable = m.Worker.Row.Name
		}
	}
	v, action := decideGang(&t.Row, g.MemberCounts(t), unreachable, g.Spec(), e, s.crashLimit(t, &e))
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
	message := gangFailMessage(&t.Row, t.Element(), &e)
	s.applyDecision(now, t, e, v)
	othersDecision := decision{State: muster.Cancelled, Reason: muster.GangMember, Message: message, Retried: v.Retried, Crashes: v.Crashes}
	switch action {
	case noAction:
	case succeedAll:
		for _, m := range g.SortedTasks() {
			if m != t {
				m.Row.FinishedAt = e.At
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
func (s *State) stopOthers(now muster.Time, g *group, v decision) {
	for _, m := range g.SortedTasks() {
		switch {
		case m.AwaitingGang():
			s.applyDecision(now, m, attemptEnd{Outcome: muster.AttemptSucceeded, Reason: muster.GangMember, Message: v.Message, At: now}, v)
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
func (s *State) resumeGang(now muster.Time, g *group) {
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

// awaitingOthers reports whether a member is done and waits for the others.
func awaitingOthers(t *muster.Task) bool { return t.State == muster.Running && t.Grant == nil }

// memberCounts counts members.
type memberCounts struct {
	Pending  int // waiting or queued
	Held     int // by a worker
	Awaiting int
	Ended    int
}

// Count adds a member.
func (s *memberCounts) Count(t *muster.Task) {
	switch {
	case t.State.Final():
		s.Ended++
	case awaitingOthers(t):
		s.Awaiting++
	case t.State.HoldsResources():
		s.Held++
	default:
		s.Pending++
	}
}

// Broken reports whether the gang must stop: some members run or are done, and others
// are pending or have ended.
func (s *memberCounts) Broken() bool { return s.Held+s.Awaiting > 0 && s.Pending+s.Ended > 0 }

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
// done. Retried and Crashes count for every member.
func decideGang(t *muster.Task, others memberCounts, unreachable string, spec *muster.TaskSpec, e attemptEnd, crashLimit int) (decision, gangAction) {
	if t.State == muster.Cancelling {
		v := decide(t, spec, e, crashLimit)
		if v.State == muster.Succeeded {
			v = decision{State: muster.Cancelled, Reason: muster.CancelledByUser, Message: "it succeeded, but its gang was cancelled"}
		}
		return v, noAction
	}
	switch {
	case others.Ended > 0:
		return decision{State: muster.Cancelled, Reason: muster.GangMember, Message: cmp.Or(t.Message, "its gang has ended")}, noAction
	case others.Pending > 0:
		return decision{State: muster.Queued, Reason: muster.GangMember, Message: cmp.Or(t.Message, "its gang restarts")}, noAction
	case e.Outcome == muster.AttemptSucceeded && others.Held > 0:
		return decision{State: muster.Running}, noAction
	case e.Outcome == muster.AttemptSucceeded:
		return decide(t, spec, e, crashLimit), succeedAll
	}
	if unreachable != "" && e.Outcome == muster.AttemptFailed && !e.Reason.FleetFault() {
		// Members fail because of a lost one long before its lease expires.
		e.Message = fmt.Sprintf("it ended while worker %s of another member was unreachable (%s)", unreachable, cmp.Or(e.Message, string(e.Reason)))
		e.Reason = muster.WorkerLost
	}
	if spec.Gang.OnLoss == muster.GangEnd && isLoss(&e) {
		e.NoRetry = true
	}
	v := decide(t, spec, e, crashLimit)
	if e.NoRetry && v.State == muster.Queued {
		v = decision{State: muster.Failed, Reason: e.Reason, Message: e.Message}
	}
	if v.State == muster.Queued {
		return v, requeueOthers
	}
	return v, cancelOthers
}

// isLoss reports whether a member was lost, rather than preempted or never started.
func isLoss(e *attemptEnd) bool {
	switch {
	case e.Uncounted, e.Outcome == muster.AttemptRejected, e.Reason == muster.Preempted, e.Reason == muster.WorkerShutdown:
		return false
	default:
		return true
	}
}

// gangFailMessage returns why the others are stopped.
func gangFailMessage(t *muster.Task, rank int, e *attemptEnd) string {
	return fmt.Sprintf("member %s (rank %d) of its gang ended: %s", t.ID, rank, cmp.Or(e.Message, string(e.Reason), string(e.Outcome)))
}

// Membership is a member's rank in its gang.
type Membership struct {
	Rank   int
	Size   int
	Master string // address of rank 0
	Port   int    // on which rank 0 listens
}

// The range of ports on which masters listen.
const (
	firstPort = 20000
	portCount = 10000
)

// masterPort returns the master's port, where a is the attempt of rank 0. It differs between
// attempts, so that an occupied port is not retried.
func masterPort(a muster.AttemptID) int { return firstPort + int(hashAttempt(a)%portCount) }

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
