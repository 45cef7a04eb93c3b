package store

import (
	"slices"

	"github.com/muster-dev/muster"
)

// WithCurrentAttempt answers Reader.Attempts for an adapter: history, which is sorted by
// number, and the attempt that only the task's row tells of, if there is one.
func WithCurrentAttempt(history []muster.Attempt, t *muster.Task) []muster.Attempt {
	if t.Attempt == 0 || !t.State.HoldsResources() && !t.State.Final() {
		return history
	}
	listed := slices.ContainsFunc(history, func(a muster.Attempt) bool { return a.ID.N == t.Attempt })
	if listed {
		return history
	}
	a := muster.Attempt{
		ID:         muster.AttemptID{Task: t.ID, N: t.Attempt},
		Worker:     t.Worker,
		Outcome:    outcomeOf(t.State),
		AssignedAt: t.AssignedAt,
		StartedAt:  t.StartedAt,
		Artifacts:  t.Artifacts,
	}
	if t.State.Final() {
		a.Reason = t.Reason
		a.Message = t.Message
		a.ExitCode = t.ExitCode
		a.Usage = t.Usage
		a.Image = t.Image
		a.LogSize = t.LogSize
		a.FinishedAt = t.FinishedAt
	}
	return append(history, a)
}

// outcomeOf returns how the last attempt of a task ended that ended with it.
func outcomeOf(s muster.TaskState) muster.Outcome {
	switch s {
	case muster.Succeeded:
		return muster.AttemptSucceeded
	case muster.Failed:
		return muster.AttemptFailed
	case muster.TimedOut:
		return muster.AttemptTimedOut
	case muster.Cancelled, muster.Skipped:
		return muster.AttemptCancelled
	case muster.Waiting, muster.Queued, muster.Assigned, muster.Running, muster.Cancelling:
		return muster.AttemptOpen
	default:
		return muster.AttemptOpen
	}
}
