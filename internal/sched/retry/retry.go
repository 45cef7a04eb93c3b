// Package retry decides what follows from the end of an attempt: another attempt and after which pause, or the final state of the task.
// It is pure.
package retry

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/muster-dev/muster"
)

// Backoffs where a spec sets none.
const (
	defaultBackoff    = muster.Duration(time.Second)
	defaultMaxBackoff = muster.Duration(10 * time.Minute)
)

// End is how an attempt ended.
type End struct {
	Outcome   muster.Outcome
	Reason    muster.Reason
	Message   string
	Uncounted bool // the task is queued again at once, and the attempt does not count
	NoRetry   bool // no further attempt
	At        muster.Time
}

// Decision is the consequence for the task.
type Decision struct {
	State   muster.TaskState // final, or Queued
	Reason  muster.Reason
	Message string
	Backoff muster.Duration // before the next attempt
	Retried int             // to add
	Crashes int             // to add
}

// Decide decides about t, a task of spec, whose current attempt ended. crashLimit is
// how many attempts may fail by the fleet's fault.
func Decide(t *muster.Task, spec *muster.TaskSpec, e End, crashLimit int) Decision {
	cancelling := t.State == muster.Cancelling
	fleet := e.Reason.FleetFault()
	switch {
	case e.Outcome == muster.AttemptSucceeded:
		return Decision{State: muster.Succeeded, Message: e.Message}
	case cancelling && e.Outcome == muster.AttemptTimedOut:
		return Decision{State: muster.TimedOut, Reason: e.Reason, Message: e.Message}
	case cancelling && e.Outcome == muster.AttemptFailed && !fleet:
		return Decision{State: muster.Failed, Reason: e.Reason, Message: e.Message}
	case cancelling:
		return Decision{State: muster.Cancelled, Reason: t.Reason, Message: cmp.Or(t.Message, e.Message)}
	case e.Uncounted:
		return Decision{State: muster.Queued, Reason: e.Reason, Message: e.Message}
	case e.Outcome == muster.AttemptCancelled && !fleet:
		return Decision{State: muster.Cancelled, Reason: e.Reason, Message: e.Message}
	case e.NoRetry:
		return Decision{State: muster.Failed, Reason: e.Reason, Message: e.Message}
	case e.Reason == muster.WorkerShutdown || e.Reason == muster.Preempted || e.Reason == muster.GangMember:
		return Decision{State: muster.Queued, Reason: e.Reason, Message: e.Message}
	case fleet:
		return decideFleetFault(t, spec, e, crashLimit)
	default:
		return decideTaskFault(t, spec, e)
	}
}

// PreferOtherWorker reports whether a task that failed with r should prefer other workers.
func PreferOtherWorker(r muster.Reason) bool {
	return r == muster.ImagePull || r == muster.EngineFailed
}

// decideFleetFault decides after a failure by the fleet's fault: another attempt, unless
// there were too many, in which case the task itself may crash workers.
func decideFleetFault(t *muster.Task, spec *muster.TaskSpec, e End, limit int) Decision {
	n := t.Crashes + 1
	if n > limit {
		return Decision{
			State: muster.Failed, Reason: muster.CrashLimit, Crashes: 1,
			Message: fmt.Sprintf("%d attempts failed through no fault of the task, the last one with %s: %s", n, e.Reason, e.Message),
		}
	}
	pause := backoff(t, spec, n-1)
	return Decision{
		State: muster.Queued, Reason: e.Reason, Backoff: pause, Crashes: 1,
		Message: fmt.Sprintf("attempt %d: %s; retrying in %s", t.Attempt, describeEnd(e, t.ExitCode), pause),
	}
}

// decideTaskFault decides after a failure by the task's own fault.
func decideTaskFault(t *muster.Task, spec *muster.TaskSpec, e End) Decision {
	retries := &spec.Retries
	if t.Retries < retries.Max && retriesOn(retries.On, e.Reason, t.ExitCode) {
		pause := backoff(t, spec, t.Retries)
		return Decision{
			State: muster.Queued, Reason: e.Reason, Backoff: pause, Retried: 1,
			Message: fmt.Sprintf("attempt %d: %s; retry %d of %d in %s",
				t.Attempt, describeEnd(e, t.ExitCode), t.Retries+1, retries.Max, pause),
		}
	}
	if e.Outcome == muster.AttemptTimedOut {
		return Decision{State: muster.TimedOut, Reason: e.Reason, Message: e.Message}
	}
	return Decision{State: muster.Failed, Reason: e.Reason, Message: e.Message}
}

// describeEnd returns a short text of how an attempt ended.
func describeEnd(e End, code *int) string {
	switch {
	case e.Message != "":
		return e.Message
	case code != nil:
		return fmt.Sprintf("%s (exit code %d)", e.Reason, *code)
	default:
		return string(e.Reason)
	}
}

// retriesOn reports whether a failure is one that the spec retries.
func retriesOn(on []string, reason muster.Reason, code *int) bool {
	if len(on) == 0 || slices.Contains(on, string(reason)) {
		return true
	}
	return code != nil && slices.Contains(on, "exit:"+strconv.Itoa(*code))
}

// backoff returns the pause before the next attempt of t: base·2^n, at most the spec's
// max_backoff, ±10 % jitter. The jitter is a hash of the attempt's id, so that it is
// reproducible.
func backoff(t *muster.Task, spec *muster.TaskSpec, n int) muster.Duration {
	r := &spec.Retries
	pause, limit := r.Backoff, r.MaxBackoff
	if pause <= 0 {
		pause = defaultBackoff
	}
	if limit <= 0 {
		limit = defaultMaxBackoff
	}
	for range n {
		if pause >= limit {
			break
		}
		pause *= 2
	}
	pause = min(pause, limit)
	jitter := float64(HashAttempt(muster.AttemptID{Task: t.ID, N: t.Attempt})>>11) / (1 << 53) // 0 to 1
	pause = muster.Duration(float64(pause) * (0.9 + 0.2*jitter))
	return muster.Duration(pause.Std().Round(time.Millisecond))
}

// HashAttempt hashes an attempt's id (the finalizer of SplitMix64).
func HashAttempt(a muster.AttemptID) uint64 {
	x := uint64(a.Task.Job)<<40 ^ uint64(a.Task.Num)<<12 ^ uint64(a.N)
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
