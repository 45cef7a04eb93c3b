package process

import (
	"context"
	"log/slog"
	"time"

	"github.com/muster-dev/muster"
)

// teardown removes what was created for the attempt. The report must be saved before: after a crash in between, the worker does
// not collect the outputs again.
func (a *Attempt) teardown(ctx context.Context, r *muster.Report) {
	if a.container != nil && !a.removalStarted {
		a.removeContainer(context.WithoutCancel(ctx), removeTimeout)
	}
	a.removal.Wait()
	if a.executor.deps.Isolator != nil && a.isolation != nil {
		a.executor.deps.Isolator.Release(a.isolation)
	}
	if a.checkpoint != "" {
		// All members of a gang restart together, also those that succeeded.
		done := r.Outcome == muster.AttemptSucceeded && a.Task.Gang == nil
		a.executor.checkpoints.release(checkpointName(a.Task), done, time.Now())
	}
	if a.base != "" {
		if err := a.folderPool().release(a.base); err != nil {
			a.executor.deps.Log.Warn("removing a task's folder failed", slog.String("folder", a.base), slog.Any("error", err))
		}
	}
}
