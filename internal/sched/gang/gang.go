package gang

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/place"
	"github.com/muster-dev/muster/internal/sched/judge"
)

// Done reports whether a member has ended well and waits for the others.
func Done(t *muster.Task) bool { return t.State == muster.Running && t.Grant == nil }

// Standing counts members.
type Standing struct {
	Open  int // wait, or are queued
	Held  int // by a worker
	Done  int
	Ended int
}

// Count adds a member.
func (s *Standing) Count(t *muster.Task) {
	switch {
	case t.State.Final():
		s.Ended++
	case Done(t):
		s.Done++
	case t.State.HoldsResources():
		s.Held++
	default:
		s.Open++
	}
}

// Broken reports whether a gang with such members is not to go on as it is: of one
// that runs, none is open and none has ended.
func (s *Standing) Broken() bool { return s.Held+s.Done > 0 && s.Open+s.Ended > 0 }

// Fate is what becomes of the others when a member's attempt has ended.
type Fate int

// The fates.
const (
	GoOn    Fate = iota // nothing; they know already, or this one is done
	Succeed             // all of them are done
	Restart             // they are stopped, and queued
	End                 // they are stopped, and cancelled
)

// Judge decides after the attempt of t, a member, ended; away is the name of a worker
// of another member that is unreachable, or "". The verdict Running says that it is
// done. Retried and Crashes of a verdict count for every member.
func Judge(t *muster.Task, others Standing, away string, spec *muster.TaskSpec, e judge.Ending, crashLimit int) (judge.Verdict, Fate) {
	if t.State == muster.Cancelling {
		v := judge.Judge(t, spec, e, crashLimit)
		if v.To == muster.Succeeded {
			v = judge.Verdict{To: muster.Cancelled, Reason: muster.CancelledByUser, Message: "it ended well, but its gang was cancelled"}
		}
		return v, GoOn
	}
	switch {
	case others.Ended > 0:
		return judge.Verdict{To: muster.Cancelled, Reason: muster.GangMember, Message: cmp.Or(t.Message, "its gang has ended")}, GoOn
	case others.Open > 0:
		return judge.Verdict{To: muster.Queued, Reason: muster.GangMember, Message: cmp.Or(t.Message, "its gang starts anew")}, GoOn
	case e.Outcome == muster.AttemptSucceeded && others.Held > 0:
		return judge.Verdict{To: muster.Running}, GoOn
	case e.Outcome == muster.AttemptSucceeded:
		return judge.Judge(t, spec, e, crashLimit), Succeed
	}
	if away != "" && e.Outcome == muster.AttemptFailed && !e.Reason.FleetFault() {
		// Members die of a lost one long before it is given up.
		e.Message = fmt.Sprintf("it ended while worker %s of another member was away (%s)", away, cmp.Or(e.Message, string(e.Reason)))
		e.Reason = muster.WorkerLost
	}
	if spec.Gang.OnLoss == muster.GangEnd && isLoss(&e) {
		e.Final = true
	}
	v := judge.Judge(t, spec, e, crashLimit)
	if e.Final && v.To == muster.Queued {
		v = judge.Verdict{To: muster.Failed, Reason: e.Reason, Message: e.Message}
	}
	if v.To == muster.Queued {
		return v, Restart
	}
	return v, End
}

// isLoss reports whether a member that ended so is a loss, rather than one that was
// asked to make room or was never taken.
func isLoss(e *judge.Ending) bool {
	switch {
	case e.Free, e.Outcome == muster.AttemptRejected, e.Reason == muster.Preempted, e.Reason == muster.WorkerShutdown:
		return false
	default:
		return true
	}
}

// Fall words for the others why they are stopped.
func Fall(t *muster.Task, rank int, e *judge.Ending) string {
	return fmt.Sprintf("member %s (rank %d) of its gang ended: %s", t.ID, rank, cmp.Or(e.Message, string(e.Reason), string(e.Outcome)))
}

// Seat is a member's place among the others.
type Seat struct {
	Rank   int
	Size   int
	Master string // where rank 0 is reached
	Port   int    // on which rank 0 listens
}

// The ports on which masters listen.
const (
	firstPort = 20000
	ports     = 10000
)

// Port is where the master of an attempt listens; a is that of rank 0. It differs
// between attempts, so that one that was taken is not tried again.
func Port(a muster.AttemptID) int { return firstPort + int(judge.Mix(a)%ports) }

// Master puts the worker that can best be reached by the others first, whose first
// member is rank 0, and returns its address: for members on one worker
// loopback, else one that leads there from other machines, else its name.
func Master(rooms []place.Room) string {
	const loopback = "127.0.0.1"
	if len(rooms) == 1 {
		return loopback
	}
	best := 0
	for i := range rooms {
		if reach(rooms[i].Book.Worker) > reach(rooms[best].Book.Worker) {
			best = i
		}
	}
	first := rooms[best]
	copy(rooms[1:best+1], rooms[:best])
	rooms[0] = first
	if w := first.Book.Worker; w.Address != "" {
		return w.Address
	}
	return first.Book.Worker.Name
}

// reach says how far a worker's address leads.
func reach(w *muster.Worker) int {
	switch a := w.Address; {
	case a == "":
		return 0
	case a == "localhost", a == "::1", strings.HasPrefix(a, "127."):
		return 1
	default:
		return 2
	}
}
