package api

import (
	"context"
	"strings"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/sched/explain"
)

const (
	// explanationTTL is how long an explanation is cached while the task's state is the same.
	explanationTTL = time.Second
	// maxExplanations is the number of cached explanations.
	maxExplanations = 1_000
)

// explanationKey is a task in a state.
type explanationKey struct {
	task    muster.TaskID
	state   muster.TaskState
	attempt int
}

func (s *server) explainTask(ctx context.Context, in *TaskPath) (*response[explain.Explanation], error) {
	task, err := s.Store.Task(ctx, in.id)
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
		task = latest // it has ended meanwhile
	}
	return respond(explainFinished(task)), nil
}

// explain returns the engine's explanation of an unfinished task, at most a second old.
func (s *server) explain(ctx context.Context, t *muster.Task) (explain.Explanation, error) {
	release, err := s.explainLimiter.acquire(ctx)
	if err != nil {
		return explain.Explanation{}, err
	}
	defer release()
	return s.explainCache.Value(explanationKey{t.ID, t.State, t.Attempt}).Get(ctx, explanationTTL, func(ctx context.Context) (explain.Explanation, error) {
		return s.Engine.Explain(ctx, t.ID)
	})
}

// explainFinished explains a finished task, which the engine no longer has.
func explainFinished(t muster.Task) explain.Explanation {
	summary := "Task " + t.ID.String() + " has ended: " + strings.ReplaceAll(t.State.String(), "_", " ")
	if t.Reason != muster.NoReason {
		summary += " (" + string(t.Reason) + ")"
	}
	if t.Message != "" {
		summary += ": " + t.Message
	}
	return explain.Explanation{Task: t.ID, State: t.State, Summary: summary}
}
