package sched

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/muster-dev/muster"
)

// Retry pauses where a spec says nothing.
const (
	defaultBackoff    = muster.Duration(time.Second)
	defaultMaxBackoff = muster.Duration(10 * time.Minute)
)

// ending is how an attempt ended.
type ending struct {
	outcome muster.Outcome
	reason  muster.Reason
	message string
	free    bool // the task is queued again at once, and it counts for nothing
	final   bool // no further attempt
	at      muster.Time
}

// verdict is what follows for the task.
type verdict struct {
	to      muster.TaskState
	reason  muster.Reason
	message string
	pause   muster.Duration // before the next attempt
	retried int             // to add
	crashes int             // to add
}

// end ends the current attempt of a held task: the task ends too, or is queued
// again.
func (s *State) end(now muster.Time, t *task, e ending) {
	v := s.judge(t, e)
	s.release(t)
	t.stopBy = 0
	t.row.Retried += v.retried
	t.row.Crashes += v.crashes
	if v.to != muster.Queued {
		if v.to == muster.Succeeded && t.row.StartedAt > 0 {
			t.shape.ran++
			t.shape.runtime += e.at.Sub(t.row.StartedAt)
		}
		t.row.Reason, t.row.Message, t.row.FinishedAt = v.reason, v.message, e.at
		s.set(now, t, v.to)
		return
	}
	r := &t.row
	s.out.attempts = append(s.out.attempts, muster.Attempt{
		ID: t.attempt(), Worker: r.Worker, Outcome: e.outcome, Reason: e.reason, Message: e.message, ExitCode: r.ExitCode,
		Artifacts: r.Artifacts, Usage: r.Usage, LogSize: r.LogSize, AssignedAt: r.AssignedAt, StartedAt: r.StartedAt, FinishedAt: e.at,
	})
	t.clear()
	r.Reason, r.Message = v.reason, v.message
	if e.outcome != muster.AttemptRejected {
		r.QueuedAt = now
	}
	if v.pause > 0 {
		r.NotBefore = now.Add(v.pause)
	}
	s.set(now, t, muster.Queued)
	if v.pause <= 0 {
		s.enqueue(&t.item)
		s.armTask(t)
	}
}

// clear empties what belongs to an execution.
func (t *task) clear() {
	r := &t.row
	r.Worker, r.Grant, r.ExitCode, r.Progress, r.Step, r.Metrics = "", nil, nil, nil, "", nil
	r.Result, r.Artifacts, r.Usage, r.LogSize = nil, nil, nil, 0
	r.NotBefore, r.AssignedAt, r.StartedAt, r.FinishedAt = 0, 0, 0, 0
}

// judge decides what the end of an attempt means for its task.
func (s *State) judge(t *task, e ending) verdict {
	cancelling := t.row.State == muster.Cancelling
	fleet := e.reason.FleetFault()
	switch {
	case e.outcome == muster.AttemptSucceeded:
		return verdict{to: muster.Succeeded, message: e.message}
	case cancelling && e.outcome == muster.AttemptTimedOut:
		return verdict{to: muster.TimedOut, reason: e.reason, message: e.message}
	case cancelling && e.outcome == muster.AttemptFailed && !fleet:
		return verdict{to: muster.Failed, reason: e.reason, message: e.message}
	case cancelling:
		return verdict{to: muster.Cancelled, reason: muster.CancelledByUser, message: e.message}
	case e.free:
		return verdict{to: muster.Queued, reason: e.reason, message: e.message}
	case e.outcome == muster.AttemptCancelled && !fleet:
		return verdict{to: muster.Cancelled, reason: e.reason, message: e.message}
	case e.final:
		return verdict{to: muster.Failed, reason: e.reason, message: e.message}
	case e.reason == muster.WorkerShutdown:
		return verdict{to: muster.Queued, reason: e.reason, message: e.message}
	case fleet:
		return s.judgeCrash(t, e)
	default:
		return judgeFailure(t, e)
	}
}

// judgeCrash decides after a failure by the fleet's fault: another try, unless the
// task itself seems to take workers down.
func (s *State) judgeCrash(t *task, e ending) verdict {
	n := t.row.Crashes + 1
	if n > s.cfg.CrashLimit {
		return verdict{
			to: muster.Failed, reason: muster.CrashLimit, crashes: 1,
			message: fmt.Sprintf("%d attempts were lost by the fleet's fault, the last one with %s: %s", n, e.reason, e.message),
		}
	}
	pause := backoff(t, n-1)
	return verdict{
		to: muster.Queued, reason: e.reason, pause: pause, crashes: 1,
		message: fmt.Sprintf("attempt %d: %s; another try in %s", t.row.Attempt, orReason(e), pause),
	}
}

// judgeFailure decides after a failure of the task's own.
func judgeFailure(t *task, e ending) verdict {
	retries := &t.group.spec().Retries
	if t.row.Retried < retries.Max && retriesOn(retries.On, e.reason, t.row.ExitCode) {
		pause := backoff(t, t.row.Retried)
		return verdict{
			to: muster.Queued, reason: e.reason, pause: pause, retried: 1,
			message: fmt.Sprintf("attempt %d: %s%s; retry %d of %d in %s",
				t.row.Attempt, orReason(e), exits(t.row.ExitCode), t.row.Retried+1, retries.Max, pause),
		}
	}
	if e.outcome == muster.AttemptTimedOut {
		return verdict{to: muster.TimedOut, reason: e.reason, message: e.message}
	}
	return verdict{to: muster.Failed, reason: e.reason, message: e.message}
}

func orReason(e ending) string {
	if e.message == "" {
		return string(e.reason)
	}
	return e.message
}

// retriesOn reports whether a failure is among those that are tried again.
func retriesOn(on []string, reason muster.Reason, code *int) bool {
	if len(on) == 0 || slices.Contains(on, string(reason)) {
		return true
	}
	return code != nil && slices.Contains(on, "exit:"+strconv.Itoa(*code))
}

// backoff returns the pause before the next attempt of t: base·2^n, at most the
// spec's most, and up to a tenth more or less, so that tasks that failed
// together do not come back together. The tenth is told by the attempt's id:
// the same attempt always gets the same pause.
func backoff(t *task, n int) muster.Duration {
	r := &t.group.spec().Retries
	pause := orDefault(r.Backoff, defaultBackoff)
	most := orDefault(r.MaxBackoff, defaultMaxBackoff)
	for range n {
		if pause >= most {
			break
		}
		pause *= 2
	}
	pause = min(pause, most)
	tell := float64(mix(t.attempt())>>11) / (1 << 53) // 0 to 1
	pause = muster.Duration(float64(pause) * (0.9 + 0.2*tell))
	return muster.Duration(pause.Std().Round(time.Millisecond))
}

// mix hashes an attempt's id (the finalizer of SplitMix64).
func mix(a muster.AttemptID) uint64 {
	x := uint64(a.Task.Job)<<40 ^ uint64(a.Task.Num)<<12 ^ uint64(a.N)
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// expire ends an attempt whose worker has been away for its whole grace.
func (s *State) expire(now muster.Time, t *task) {
	d := t.group.spec().Disconnect
	s.end(now, t, ending{
		outcome: muster.AttemptLost, reason: muster.WorkerLost, at: now, final: d.Then == muster.ThenFail,
		message: fmt.Sprintf("worker %s was not heard for %s", t.worker.row.Name, orDefault(d.Grace, defaultLease)),
	})
}

// miss ends an attempt that its worker does not have. If the worker never said
// that it took it, that is no sign of a crash.
func (s *State) miss(now muster.Time, t *task) {
	s.end(now, t, ending{
		outcome: muster.AttemptLost, reason: muster.WorkerRestarted, at: now, free: !t.accepted && t.row.State == muster.Assigned,
		message: fmt.Sprintf("worker %s does not have it (any more)", t.worker.row.Name),
	})
}

// giveUp ends a cancelled attempt whose worker did not confirm in time.
func (s *State) giveUp(now muster.Time, t *task) {
	w, a := t.worker, t.attempt()
	s.end(now, t, ending{
		outcome: muster.AttemptCancelled, reason: muster.CancelledByUser, at: now,
		message: fmt.Sprintf("worker %s did not confirm in time that it stopped", w.row.Name),
	})
	s.tell(w, Stop{Worker: w.row.ID, Attempt: a, Outcome: muster.AttemptLost, Reason: muster.CancelledByUser})
}
