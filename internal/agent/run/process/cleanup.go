package process

import (
	"context"
	"log/slog"
	"time"

	"github.com/muster-dev/muster"
)

// cleanup removes what was made for the attempt. Its report is settled before: should
// the worker end in between, nobody looks for its outputs again.
func (a *Attempt) cleanup(ctx context.Context, r *muster.Report) {
	if a.box != nil && !a.unmade {
		a.remove(context.WithoutCancel(ctx), removeWait)
	}
	a.removal.Wait()
	if a.e.env.Limits != nil && a.confine != nil {
		a.e.env.Limits.Release(a.confine)
	}
	if a.checkpoint != "" {
		// The members of a gang start again together, also those that have succeeded.
		done := r.Outcome == muster.AttemptSucceeded && a.Task.Gang == nil
		a.e.checkpoints.drop(checkpointName(a.Task), done, time.Now())
	}
	if a.base != "" {
		if err := a.stock().give(a.base); err != nil {
			a.e.env.Log.Warn("a task's folder cannot be removed", slog.String("folder", a.base), slog.Any("error", err))
		}
	}
}
