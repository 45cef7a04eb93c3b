package api

import (
	"context"
	"strings"
	"time"

	"github.com/muster-dev/muster"
)

const (
	// explanationTTL is how long an explanation is good for, as long as the task stands where it stood.
	explanationTTL = time.Second
	// maxExplanations is how many explanations are remembered.
	maxExplanations = 1_000
)

// explanationKey is a task where it stands.
type explanationKey struct {
	task    muster.TaskID
	state   muster.TaskState
	attempt int
}

func (s *server) explainTask(ctx context.Context, in *TaskPath) (*response[muster.Explanation], error) {
	task, err := s.readTask(ctx, in.Task)
	if err != nil {
		return nil, err
	}
	if !task.State.Final() {
		x, err := s.explain(ctx, &task)
		if err == nil {
			return respond(x), nil
		}
		if muster.CodeOf(err) != muster.NotFound {
			return nil, err
		}
		latest, readErr := s.Store.Task(ctx, task.ID)
		if readErr != nil || !latest.State.Final() {
			return nil, err
		}
		task = latest // it has ended in between
	}
	return respond(explainFinished(task)), nil
}

// explain asks the engine why a live task stands where it stands, if that was not asked in the last second.
func (s *server) explain(ctx context.Context, t *muster.Task) (muster.Explanation, error) {
	release, err := s.explainLimiter.acquire(ctx)
	if err != nil {
		return muster.Explanation{}, err
	}
	defer release()
	return s.explainCache.Value(explanationKey{t.ID, t.State, t.Attempt}).Get(ctx, explanationTTL, func(ctx context.Context) (muster.Explanation, error) {
		return s.Engine.Explain(ctx, t.ID)
	})
}

// explainFinished explains a task that has ended, which the engine knows no more.
func explainFinished(t muster.Task) muster.Explanation {
	summary := "Task " + t.ID.String() + " has ended: " + strings.ReplaceAll(t.State.String(), "_", " ")
	if t.Reason != muster.NoReason {
		summary += " (" + string(t.Reason) + ")"
	}
	if t.Message != "" {
		summary += ": " + t.Message
	}
	return muster.Explanation{Task: t.ID, State: t.State, Summary: summary}
}
