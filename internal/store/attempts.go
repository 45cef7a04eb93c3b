package store

import (
	"slices"

	"github.com/muster-dev/muster"
)

// WithCurrentAttempt implements Reader.Attempts for an adapter: it returns history, which is sorted by
// number, and the current attempt, which only the task's row has, if there is one.
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

// outcomeOf returns the outcome of the last attempt of a task in a state.
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
	}
	return muster.AttemptOpen
}
