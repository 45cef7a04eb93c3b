package process

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"path/filepath"
	"strconv"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
)

// makeFolders creates the attempt's folders.
func (a *Attempt) makeFolders(context.Context) error {
	a.setPaths()
	err := a.folderPool().acquire(a.base)
	if err == nil {
		a.checkpoint, err = a.executor.checkpoints.acquire(checkpointName(a.Task))
	}
	if err != nil {
		return run.Failf(muster.WorkerInternal, "create the task's folder: %w", err)
	}
	return nil
}

// setPaths sets the paths of the attempt's folders. They are the same in every incarnation of the worker.
func (a *Attempt) setPaths() {
	id := a.Task.Attempt
	a.base = filepath.Join(a.executor.tasks, id.Task.String()+"-"+strconv.Itoa(id.N))
	a.Dir = filepath.Join(a.base, "work")
}

// folderPool returns the pool of the attempt's folder.
func (a *Attempt) folderPool() *folderPool {
	if a.mode == modeContainer {
		return &a.executor.containerFolders
	}
	return &a.executor.processFolders
}

func (a *Attempt) outDir() string { return filepath.Join(a.base, "out") }

// envTag returns the environment entry that identifies this attempt's processes on the machine. All containers have the same
// $MUSTER_OUT, so they get a hash, which does not disclose the worker's paths.
func (a *Attempt) envTag() string {
	if h := a.Task.Recovered; h != nil && h.Start.EnvTag != "" {
		return h.Start.EnvTag // an older version may have used another format
	}
	if a.mode == modeContainer {
		sum := sha256.Sum256([]byte("mark\n" + a.base))
		return "MUSTER_MARK=" + hex.EncodeToString(sum[:16])
	}
	return "MUSTER_OUT=" + a.outDir()
}

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
