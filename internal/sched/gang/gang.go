// Package gang decides what follows for a gang from the end of one member's attempt, and where its master is. It is pure.
package gang

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/placement"
	"github.com/muster-dev/muster/internal/sched/retry"
)

// AwaitsOthers reports whether a member is done and waits for the others.
func AwaitsOthers(t *muster.Task) bool { return t.State == muster.Running && t.Grant == nil }

// Members counts members.
type Members struct {
	Pending  int // waiting or queued
	Held     int // by a worker
	Awaiting int
	Ended    int
}

// Count adds a member.
func (s *Members) Count(t *muster.Task) {
	switch {
	case t.State.Final():
		s.Ended++
	case AwaitsOthers(t):
		s.Awaiting++
	case t.State.HoldsResources():
		s.Held++
	default:
		s.Pending++
	}
}

// Broken reports whether the gang must stop: some members run or are done, and others
// are pending or have ended.
func (s *Members) Broken() bool { return s.Held+s.Awaiting > 0 && s.Pending+s.Ended > 0 }

// Action is what happens to the others when a member's attempt has ended.
type Action int

// The actions.
const (
	None          Action = iota // they are stopping already, or this member is done
	SucceedOthers               // all of them are done
	RequeueOthers               // they are stopped and queued
	CancelOthers                // they are stopped and cancelled
)

// Decide decides about t, a member whose attempt ended. unreachable is the name of
// another member's unreachable worker, or "". The state Running means that the member is
// done. Retries and Crashes count for every member.
func Decide(t *muster.Task, others Members, unreachable string, spec *muster.TaskSpec, e retry.End, crashLimit int) (retry.Decision, Action) {
	if t.State == muster.Cancelling {
		v := retry.Decide(t, spec, e, crashLimit)
		if v.State == muster.Succeeded {
			v = retry.Decision{State: muster.Cancelled, Reason: t.Reason, Message: "it succeeded, but its gang was cancelled"}
		}
		return v, None
	}
	switch {
	case others.Ended > 0:
		return retry.Decision{State: muster.Cancelled, Reason: muster.GangMember, Message: cmp.Or(t.Message, "its gang has ended")}, None
	case others.Pending > 0:
		return retry.Decision{State: muster.Queued, Reason: muster.GangMember, Message: cmp.Or(t.Message, "its gang restarts")}, None
	case e.Outcome == muster.AttemptSucceeded && others.Held > 0:
		return retry.Decision{State: muster.Running}, None
	case e.Outcome == muster.AttemptSucceeded:
		return retry.Decide(t, spec, e, crashLimit), SucceedOthers
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
		return v, RequeueOthers
	}
	return v, CancelOthers
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

// FailMessage returns why the others are stopped.
func FailMessage(t *muster.Task, rank int, e *retry.End) string {
	return fmt.Sprintf("member %s (rank %d) of its gang ended: %s", t.ID, rank, cmp.Or(e.Message, string(e.Reason), string(e.Outcome)))
}

// The range of ports on which masters listen.
const (
	firstPort = 20000
	portCount = 10000
)

// MasterPort returns the master's port, where a is the attempt of rank 0. It differs between
// attempts, so that an occupied port is not retried.
func MasterPort(a muster.AttemptID) int { return firstPort + int(retry.HashAttempt(a)%portCount) }

// PickMaster moves the worker with the most widely reachable address to the front: its
// first member is rank 0. It returns that address: loopback if all members are on one
// worker, else the worker's address, else its name.
func PickMaster(fits []placement.GangFit) string {
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
