package process

import (
	"context"
	"log/slog"
	"time"

	"github.com/muster-dev/muster"
)

// teardown removes what was made for the attempt. Its report is settled before: should
// the worker end in between, nobody looks for its outputs again.
func (a *Attempt) teardown(ctx context.Context, r *muster.Report) {
	if a.container != nil && !a.removalStarted {
		a.removeContainer(context.WithoutCancel(ctx), removeTimeout)
	}
	a.removal.Wait()
	if a.executor.deps.Isolator != nil && a.isolation != nil {
		a.executor.deps.Isolator.Release(a.isolation)
	}
	if a.checkpoint != "" {
		// The members of a gang start again together, also those that have succeeded.
		done := r.Outcome == muster.AttemptSucceeded && a.Task.Gang == nil
		a.executor.checkpoints.release(checkpointName(a.Task), done, time.Now())
	}
	if a.base != "" {
		if err := a.folderPool().release(a.base); err != nil {
			a.executor.deps.Log.Warn("a task's folder cannot be removed", slog.String("folder", a.base), slog.Any("error", err))
		}
	}
}
