package noop_test

import (
	"context"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/agent/run/noop"
)

func TestNoopSucceeds(t *testing.T) {
	x := noop.Executor{}
	task := &run.Task{Attempt: muster.AttemptID{Task: muster.TaskID{Job: 1}, N: 1}, Spec: &muster.TaskSpec{}}
	// The sink is nil: a call would panic.
	r := x.Run(t.Context(), task, nil)
	if r.Outcome != muster.AttemptSucceeded || r.Attempt != task.Attempt || r.StartedAt == 0 || r.FinishedAt < r.StartedAt {
		t.Errorf("%+v", r)
	}
	if n := testing.AllocsPerRun(100, func() { x.Run(t.Context(), task, nil) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(&run.Stopped{Outcome: muster.AttemptCancelled, Reason: muster.CancelledByUser})
	if r := x.Run(ctx, task, nil); r.Outcome != muster.AttemptCancelled || r.Reason != muster.CancelledByUser {
		t.Errorf("%+v", r)
	}
}
