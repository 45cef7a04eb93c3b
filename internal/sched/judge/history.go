package judge

import (
	"math"
	"slices"

	"github.com/muster-dev/muster"
)

// CheckProgress returns an Invalid error for values out of range.
func CheckProgress(p *muster.Progress) error {
	if p.Progress != nil && (math.IsNaN(*p.Progress) || *p.Progress < 0 || *p.Progress > 1) {
		return muster.Errorf(muster.Invalid, "progress %g of attempt %s is not between 0 and 1", *p.Progress, p.Attempt)
	}
	for name, v := range p.Metrics {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return muster.Errorf(muster.Invalid, "metric %q of attempt %s is not a finite number", name, p.Attempt)
		}
	}
	return nil
}

// HistoryRow returns the history row of a task's current attempt, which ended with e.
func HistoryRow(r *muster.Task, e AttemptEnd) muster.Attempt {
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
	return HistoryRow(r, AttemptEnd{Outcome: outcome, Reason: r.Reason, Message: r.Message, At: r.FinishedAt}), true
}

// ApplyReport copies a report to the task. Artifacts that an unsuccessful attempt published while it ran are kept.
func ApplyReport(t *muster.Task, r *muster.Report) {
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
