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

// How long the last saving of a checkpoint may take: less than the server waits for
// the report of a task that was stopped.
const (
	saveTimeout          = 4 * time.Minute
	saveTimeoutShutdown  = time.Minute
	saveTimeoutCancelled = 20 * time.Second

	saveStepDelay = 2 * time.Second // it is shown as a step if it takes longer
)

// savesCheckpoint reports whether the task's checkpoint is kept on the server.
func (a *Attempt) savesCheckpoint() bool {
	return a.Task.Spec.Checkpoint != nil && a.executor.deps.Checkpoints != nil && a.checkpoint != ""
}

// loadCheckpoint brings the checkpoint folder to where the task was.
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

// linkCheckpoint makes the name in the task's folder by which it looks for its checkpoint lead to
// $MUSTER_CHECKPOINT.
func (a *Attempt) linkCheckpoint(context.Context) error {
	c := a.Task.Spec.Checkpoint
	if c == nil || c.Path == "" {
		return nil
	}
	name := path.Clean(c.Path)
	if !filepath.IsLocal(filepath.FromSlash(name)) || name == "." {
		return run.Failf(muster.TaskInvalid, "the checkpoint folder %q would lie outside the task's folder", name)
	}
	root, err := a.OpenRoot()
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }() // holds nothing that could be lost
	if err := root.MkdirAll(path.Dir(name), 0o700); err != nil {
		return run.Failf(muster.TaskInvalid, "no folder can be made for the checkpoint folder %s: %w", name, err)
	}
	if _, err := root.Lstat(name); err == nil {
		if err := root.Remove(name); err != nil { // other than an empty folder, or a link
			return run.Failf(muster.TaskInvalid, "the checkpoint folder %s is there already, among the task's files: leave it out with .musterignore, or name another one", name)
		}
	}
	if err := root.Symlink(a.paths().checkpoint, name); err != nil {
		return run.Failf(muster.WorkerInternal, "the checkpoint folder %s cannot be made: %w", name, err)
	}
	return nil
}

// startSaving begins to save the checkpoint while the task runs.
func (a *Attempt) startSaving() {
	if a.savesCheckpoint() {
		a.executor.checkpoints.markStored(checkpointName(a.Task))
		a.stopSave = a.executor.deps.Checkpoints.Watch(a.Task, a.checkpoint, a.LogLine, func() { a.log.record(tasklog.Progress, run.CheckpointPoint()) })
	}
}

// stopSaving ends the saving. A task that has ended, and not well, is saved once
// more.
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

// lastSaveTimeout is how long the last saving may take, 0 if it is of no use.
func (a *Attempt) lastSaveTimeout() time.Duration {
	if a.exit == nil {
		return 0 // it goes on running
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
