package process

import (
	"context"
	"path"
	"path/filepath"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/tasklog"
)

// Limits of the last upload of a checkpoint: less than the server waits for the report of a stopped task.
const (
	saveTimeout          = 4 * time.Minute
	saveTimeoutShutdown  = time.Minute
	saveTimeoutCancelled = 20 * time.Second

	saveStepDelay = 2 * time.Second // an upload that takes longer is reported as a step
)

// savesCheckpoint reports whether the task's checkpoint is uploaded to the server.
func (a *Attempt) savesCheckpoint() bool {
	return a.Task.Spec.Checkpoint != nil && a.executor.deps.Checkpoints != nil && a.checkpoint != ""
}

// loadCheckpoint fetches the checkpoint of the previous attempt into the checkpoint folder.
func (a *Attempt) loadCheckpoint(ctx context.Context) error {
	if a.savesCheckpoint() {
		a.executor.checkpoints.markStored(checkpointName(a.Task))
		if a.Task.Checkpoint != "" {
			a.SetStep("fetching the checkpoint")
			if err := a.executor.deps.Checkpoints.Load(ctx, a.Task, a.checkpoint); err != nil {
				return err
			}
		}
	}
	return nil
}

// linkCheckpoint creates the spec's checkpoint path in the task's folder, as a symbolic link to $MUSTER_CHECKPOINT.
func (a *Attempt) linkCheckpoint(context.Context) error {
	c := a.Task.Spec.Checkpoint
	if c == nil || c.Path == "" {
		return nil
	}
	name := path.Clean(c.Path)
	if !filepath.IsLocal(filepath.FromSlash(name)) || name == "." {
		return run.Failf(muster.TaskInvalid, "checkpoint folder %q is outside the task's folder", name)
	}
	root, err := a.OpenRoot()
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	if err := root.MkdirAll(path.Dir(name), 0o700); err != nil {
		return run.Failf(muster.TaskInvalid, "create the parent of checkpoint folder %s: %w", name, err)
	}
	if _, err := root.Lstat(name); err == nil {
		if err := root.Remove(name); err != nil { // Remove only succeeds for an empty folder or a link
			return run.Failf(muster.TaskInvalid, "checkpoint folder %s already exists among the task's files: exclude it with .musterignore, or choose another path", name)
		}
	}
	if err := root.Symlink(a.paths().checkpoint, name); err != nil {
		return run.Failf(muster.WorkerInternal, "create checkpoint folder %s: %w", name, err)
	}
	return nil
}

// startSaving starts to upload checkpoints while the task runs.
func (a *Attempt) startSaving() {
	if a.savesCheckpoint() {
		a.executor.checkpoints.markStored(checkpointName(a.Task))
		a.stopSave = a.executor.deps.Checkpoints.Watch(a.Task, a.checkpoint, a.LogLine, func() { a.log.record(tasklog.Progress, run.CheckpointPoint()) })
	}
}

// stopSaving stops the uploads, after a last one if the task ended without success.
func (a *Attempt) stopSaving() {
	if a.stopSave == nil {
		return
	}
	timeout := a.lastSaveTimeout()
	stepTimer := time.AfterFunc(saveStepDelay, func() { a.SetStep("saving the checkpoint") })
	a.stopSave(timeout)
	a.stopSave = nil
	if !stepTimer.Stop() {
		a.SetStep("")
	}
}

// lastSaveTimeout returns how long the last upload may take, 0 for no upload.
func (a *Attempt) lastSaveTimeout() time.Duration {
	if a.exit == nil {
		return 0 // the task keeps running
	}
	cause := a.stopped()
	switch {
	case cause == nil && a.exit.Code == 0:
		return 0
	case cause == nil:
		return saveTimeout
	case cause.Reason == muster.WorkerLost:
		return 0 // the server has given the attempt up
	case cause.Reason == muster.WorkerShutdown:
		return saveTimeoutShutdown
	case cause.Outcome == muster.AttemptCancelled:
		return saveTimeoutCancelled
	}
	return saveTimeout
}
