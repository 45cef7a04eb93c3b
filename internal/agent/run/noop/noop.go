// Package noop runs tasks that do nothing: they succeed at once, without a folder, a log or a process. Tests and benchmarks use them.
package noop

import (
	"context"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
)

// Executor runs noop tasks.
type Executor struct{}

// Kind returns noop.
func (Executor) Kind() string { return muster.KindNoop }

// Run succeeds, unless ctx has ended already. It does not call the reporter: the report has the start time.
func (Executor) Run(ctx context.Context, t *run.Task, _ run.Reporter) muster.Report {
	now := run.Now()
	if ctx.Err() != nil {
		s := run.StopCause(ctx)
		return muster.Report{Attempt: t.Attempt, Outcome: s.Outcome, Reason: s.Reason, Message: s.Error(), FinishedAt: now}
	}
	return muster.Report{Attempt: t.Attempt, Outcome: muster.AttemptSucceeded, StartedAt: now, FinishedAt: now}
}
