// Package report turns the reports of workers into the fields of tasks and attempts. It is pure.
package report

import (
	"maps"
	"slices"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/sched/retry"
)

// maxMetrics limits the metrics of one attempt; further names are ignored.
const maxMetrics = 100

// ClampTime limits a worker's time to the range of two server times; 0 means to.
func ClampTime(at, from, to muster.Time) muster.Time {
	if at == 0 {
		return to
	}
	return min(max(at, from), to)
}

// MergeMetrics returns a new map of old and update: rows and events share the old one.
func MergeMetrics(old, update map[string]float64) map[string]float64 {
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

// Reason returns the report's reason, or the default for its outcome.
func Reason(r *muster.Report) muster.Reason {
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

// TruncateMessage cuts a worker's message to 4 KiB.
func TruncateMessage(message string) string {
	const limit = 4096
	if len(message) <= limit {
		return message
	}
	return strings.ToValidUTF8(message[:limit], "") + "…"
}

// HistoryRow returns the history row of a task's current attempt, which ended with e.
func HistoryRow(r *muster.Task, e retry.End) muster.Attempt {
	return muster.Attempt{
		ID: muster.AttemptID{Task: r.ID, N: r.Attempt}, Worker: r.Worker, Outcome: e.Outcome, Reason: e.Reason, Message: e.Message, ExitCode: r.ExitCode,
		Artifacts: r.Artifacts, Usage: r.Usage, Image: r.Image, LogSize: r.LogSize, AssignedAt: r.AssignedAt, StartedAt: r.StartedAt, FinishedAt: e.At,
	}
}

// LastAttempt returns the history row of the attempt with which a task ended, and false if it ended without one.
func LastAttempt(r *muster.Task) (muster.Attempt, bool) {
	outcome := map[muster.TaskState]muster.Outcome{
		muster.Succeeded: muster.AttemptSucceeded, muster.Failed: muster.AttemptFailed, muster.TimedOut: muster.AttemptTimedOut,
		muster.Cancelled: muster.AttemptCancelled, muster.Skipped: muster.AttemptCancelled,
	}[r.State]
	if outcome == muster.AttemptOpen || r.AssignedAt == 0 { // it was cancelled between two attempts
		return muster.Attempt{}, false
	}
	return HistoryRow(r, retry.End{Outcome: outcome, Reason: r.Reason, Message: r.Message, At: r.FinishedAt}), true
}

// Apply copies a report to the task. Artifacts that an unsuccessful attempt published while it ran are kept.
func Apply(t *muster.Task, r *muster.Report) {
	shown := t.Artifacts
	t.ExitCode, t.Result, t.Artifacts, t.Usage, t.Image, t.LogSize = r.ExitCode, r.Result, r.Artifacts, r.Usage, TruncateMessage(r.Image), r.LogSize
	if r.Outcome == muster.AttemptSucceeded {
		return
	}
	for _, a := range shown {
		if !slices.ContainsFunc(r.Artifacts, func(b muster.Artifact) bool { return a.Name == b.Name }) {
			t.Artifacts = append(slices.Clip(t.Artifacts), a)
		}
	}
}

// ClearExecution clears the fields that belong to one attempt.
func ClearExecution(r *muster.Task) {
	r.Worker, r.Grant, r.ExitCode, r.Progress, r.Step, r.Metrics = "", nil, nil, nil, "", nil
	r.Result, r.Artifacts, r.Usage, r.Image, r.LogSize = nil, nil, nil, "", 0
	r.NotBefore, r.AssignedAt, r.StartedAt, r.FinishedAt = 0, 0, 0, 0
}
