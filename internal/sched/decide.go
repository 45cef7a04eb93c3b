package sched

import (
	"maps"
	"slices"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/sched/retry"
)

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
func faultOf(t *muster.Task, e *retry.End, proven bool) fault {
	switch e.Reason {
	case muster.Preempted, muster.GangMember, muster.WorkerShutdown:
		return noFault
	case muster.FetchFailed, muster.UploadFailed, muster.ImagePull:
		if !proven {
			return noFault
		}
	default:
	}
	switch {
	case e.Uncounted || t.State == muster.Cancelling || e.Outcome == muster.AttemptCancelled:
		return noFault
	case e.Outcome == muster.AttemptSucceeded:
		return taskFault
	case e.Reason.FleetFault():
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
func historyRow(r *muster.Task, e retry.End) muster.Attempt {
	return muster.Attempt{
		ID: muster.AttemptID{Task: r.ID, N: r.Attempt}, Worker: r.Worker, Outcome: e.Outcome, Reason: e.Reason, Message: e.Message, ExitCode: r.ExitCode,
		Artifacts: r.Artifacts, Usage: r.Usage, Image: r.Image, LogSize: r.LogSize, AssignedAt: r.AssignedAt, StartedAt: r.StartedAt, FinishedAt: e.At,
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
	return historyRow(r, retry.End{Outcome: outcome, Reason: r.Reason, Message: r.Message, At: r.FinishedAt}), true
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
