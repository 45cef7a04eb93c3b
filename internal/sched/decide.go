package sched

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/muster-dev/muster"
)

// Backoffs where a spec sets none.
const (
	defaultBackoff    = muster.Duration(time.Second)
	defaultMaxBackoff = muster.Duration(10 * time.Minute)
)

// attemptEnd is how an attempt ended.
type attemptEnd struct {
	outcome   muster.Outcome
	reason    muster.Reason
	message   string
	uncounted bool // the task is queued again at once, and the attempt does not count
	noRetry   bool // no further attempt
	at        muster.Time
}

// decision is the consequence for the task.
type decision struct {
	state   muster.TaskState // final, or Queued
	reason  muster.Reason
	message string
	backoff muster.Duration // before the next attempt
	retried int             // to add
	crashes int             // to add
}

// decide decides about t, a task of spec, whose current attempt ended. crashLimit is
// how many attempts may fail by the fleet's fault.
func decide(t *muster.Task, spec *muster.TaskSpec, e attemptEnd, crashLimit int) decision {
	cancelling := t.State == muster.Cancelling
	fleet := e.reason.FleetFault()
	switch {
	case e.outcome == muster.AttemptSucceeded:
		return decision{state: muster.Succeeded, message: e.message}
	case cancelling && e.outcome == muster.AttemptTimedOut:
		return decision{state: muster.TimedOut, reason: e.reason, message: e.message}
	case cancelling && e.outcome == muster.AttemptFailed && !fleet:
		return decision{state: muster.Failed, reason: e.reason, message: e.message}
	case cancelling:
		return decision{state: muster.Cancelled, reason: muster.CancelledByUser, message: e.message}
	case e.uncounted:
		return decision{state: muster.Queued, reason: e.reason, message: e.message}
	case e.outcome == muster.AttemptCancelled && !fleet:
		return decision{state: muster.Cancelled, reason: e.reason, message: e.message}
	case e.noRetry:
		return decision{state: muster.Failed, reason: e.reason, message: e.message}
	case e.reason == muster.WorkerShutdown || e.reason == muster.Preempted || e.reason == muster.GangMember:
		return decision{state: muster.Queued, reason: e.reason, message: e.message}
	case fleet:
		return decideFleetFault(t, spec, e, crashLimit)
	default:
		return decideTaskFault(t, spec, e)
	}
}

// preferOtherWorker reports whether a task that failed with r should prefer other workers.
func preferOtherWorker(r muster.Reason) bool {
	return r == muster.ImagePull || r == muster.EngineFailed
}

// decideFleetFault decides after a failure by the fleet's fault: another attempt, unless
// there were too many, in which case the task itself may crash workers.
func decideFleetFault(t *muster.Task, spec *muster.TaskSpec, e attemptEnd, limit int) decision {
	n := t.Crashes + 1
	if n > limit {
		return decision{
			state: muster.Failed, reason: muster.CrashLimit, crashes: 1,
			message: fmt.Sprintf("%d attempts failed through no fault of the task, the last one with %s: %s", n, e.reason, e.message),
		}
	}
	pause := backoff(t, spec, n-1)
	return decision{
		state: muster.Queued, reason: e.reason, backoff: pause, crashes: 1,
		message: fmt.Sprintf("attempt %d: %s; retrying in %s", t.Attempt, describeEnd(e, t.ExitCode), pause),
	}
}

// decideTaskFault decides after a failure by the task's own fault.
func decideTaskFault(t *muster.Task, spec *muster.TaskSpec, e attemptEnd) decision {
	retries := &spec.Retries
	if t.Retries < retries.Max && retriesOn(retries.On, e.reason, t.ExitCode) {
		pause := backoff(t, spec, t.Retries)
		return decision{
			state: muster.Queued, reason: e.reason, backoff: pause, retried: 1,
			message: fmt.Sprintf("attempt %d: %s; retry %d of %d in %s",
				t.Attempt, describeEnd(e, t.ExitCode), t.Retries+1, retries.Max, pause),
		}
	}
	if e.outcome == muster.AttemptTimedOut {
		return decision{state: muster.TimedOut, reason: e.reason, message: e.message}
	}
	return decision{state: muster.Failed, reason: e.reason, message: e.message}
}

// describeEnd returns a short text of how an attempt ended.
func describeEnd(e attemptEnd, code *int) string {
	switch {
	case e.message != "":
		return e.message
	case code != nil:
		return fmt.Sprintf("%s (exit code %d)", e.reason, *code)
	default:
		return string(e.reason)
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
	jitter := float64(hashAttempt(muster.AttemptID{Task: t.ID, N: t.Attempt})>>11) / (1 << 53) // 0 to 1
	pause = muster.Duration(float64(pause) * (0.9 + 0.2*jitter))
	return muster.Duration(pause.Std().Round(time.Millisecond))
}

// hashAttempt hashes an attempt's id (the finalizer of SplitMix64).
func hashAttempt(a muster.AttemptID) uint64 {
	x := uint64(a.Task.Job)<<40 ^ uint64(a.Task.Num)<<12 ^ uint64(a.N)
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// fault is whose fault the end of an attempt is.
type fault uint8

// The faults.
const (
	noFault     fault = iota // says nothing about the worker
	taskFault                // the task's fault or a success: the worker works
	workerFault              // the worker's fault
)

// faultOf returns whose fault the end of t's current attempt is. A failure that the spec
// may cause, such as an image that cannot be pulled anywhere, is the worker's fault only
// if proven is set: another task of the stage has succeeded.
func faultOf(t *muster.Task, e *attemptEnd, proven bool) fault {
	switch e.reason {
	case muster.Preempted, muster.GangMember, muster.WorkerShutdown:
		return noFault
	case muster.FetchFailed, muster.UploadFailed, muster.ImagePull:
		if !proven {
			return noFault
		}
	default:
	}
	switch {
	case e.uncounted || t.State == muster.Cancelling || e.outcome == muster.AttemptCancelled:
		return noFault
	case e.outcome == muster.AttemptSucceeded:
		return taskFault
	case e.reason.FleetFault():
		return workerFault
	case t.StartedAt > 0:
		return taskFault
	default:
		return noFault
	}
}

// maxMetrics limits the metrics of one attempt; further names are ignored.
const maxMetrics = 100

// clampTime limits a worker's time to the range of two server times; 0 means to.
func clampTime(at, from, to muster.Time) muster.Time {
	if at == 0 {
		return to
	}
	return min(max(at, from), to)
}

// mergeMetrics returns a new map of old and update: rows and events share the old one.
func mergeMetrics(old, update map[string]float64) map[string]float64 {
	m := make(map[string]float64, len(old)+len(update))
	maps.Copy(m, old)
	spare := maxMetrics - len(m)
	for _, name := range slices.Sorted(maps.Keys(update)) {
		if _, known := m[name]; !known {
			if spare <= 0 {
				continue
			}
			spare--
		}
		m[name] = update[name]
	}
	return m
}

// reasonOf returns the report's reason, or the default for its outcome.
func reasonOf(r *muster.Report) muster.Reason {
	switch {
	case r.Outcome == muster.AttemptLost && !r.Reason.FleetFault():
		return muster.WorkerLost
	case r.Reason != muster.NoReason || r.Outcome == muster.AttemptSucceeded:
		return r.Reason
	case r.Outcome == muster.AttemptTimedOut:
		return muster.Timeout
	case r.Outcome == muster.AttemptCancelled:
		return muster.CancelledByUser
	default:
		return muster.ExitCode
	}
}

// truncateMessage cuts a worker's message to 4 KiB.
func truncateMessage(message string) string {
	const limit = 4096
	if len(message) <= limit {
		return message
	}
	return strings.ToValidUTF8(message[:limit], "") + "…"
}

// historyRow returns the history row of a task's current attempt, which ended with e.
func historyRow(r *muster.Task, e attemptEnd) muster.Attempt {
	return muster.Attempt{
		ID: muster.AttemptID{Task: r.ID, N: r.Attempt}, Worker: r.Worker, Outcome: e.outcome, Reason: e.reason, Message: e.message, ExitCode: r.ExitCode,
		Artifacts: r.Artifacts, Usage: r.Usage, Image: r.Image, LogSize: r.LogSize, AssignedAt: r.AssignedAt, StartedAt: r.StartedAt, FinishedAt: e.at,
	}
}

// lastAttempt returns the history row of the attempt with which a task ended, and false if it ended without one.
func lastAttempt(r *muster.Task) (muster.Attempt, bool) {
	outcome := map[muster.TaskState]muster.Outcome{
		muster.Succeeded: muster.AttemptSucceeded, muster.Failed: muster.AttemptFailed, muster.TimedOut: muster.AttemptTimedOut,
		muster.Cancelled: muster.AttemptCancelled, muster.Skipped: muster.AttemptCancelled,
	}[r.State]
	if outcome == muster.AttemptOpen || r.AssignedAt == 0 { // it was cancelled between two attempts
		return muster.Attempt{}, false
	}
	return historyRow(r, attemptEnd{outcome: outcome, reason: r.Reason, message: r.Message, at: r.FinishedAt}), true
}

// applyReport copies a report to the task. Artifacts that an unsuccessful attempt published while it ran are kept.
func applyReport(t *muster.Task, r *muster.Report) {
	shown := t.Artifacts
	t.ExitCode, t.Result, t.Artifacts, t.Usage, t.Image, t.LogSize = r.ExitCode, r.Result, r.Artifacts, r.Usage, truncateMessage(r.Image), r.LogSize
	if r.Outcome == muster.AttemptSucceeded {
		return
	}
	for _, a := range shown {
		if !slices.ContainsFunc(r.Artifacts, func(b muster.Artifact) bool { return a.Name == b.Name }) {
			t.Artifacts = append(slices.Clip(t.Artifacts), a)
		}
	}
}

// clearExecution clears the fields that belong to one attempt.
func clearExecution(r *muster.Task) {
	r.Worker, r.Grant, r.ExitCode, r.Progress, r.Step, r.Metrics = "", nil, nil, nil, "", nil
	r.Result, r.Artifacts, r.Usage, r.Image, r.LogSize = nil, nil, nil, "", 0
	r.NotBefore, r.AssignedAt, r.StartedAt, r.FinishedAt = 0, 0, 0, 0
}
