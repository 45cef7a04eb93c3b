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
	saveAtLast    = 4 * time.Minute
	saveShutDown  = time.Minute
	saveCancelled = 20 * time.Second

	saveShown = 2 * time.Second // it is shown as a step if it takes longer
)

// saves reports whether the task's checkpoint is kept on the server.
func (a *Attempt) saves() bool {
	return a.Task.Spec.Checkpoint != nil && a.e.env.Checkpoints != nil && a.checkpoint != ""
}

// resume brings the checkpoint folder to where the task was.
func (a *Attempt) resume(ctx context.Context) error {
	if a.saves() {
		a.e.checkpoints.keep(checkpointName(a.Task))
		if a.Task.Checkpoint != "" {
			a.Step("fetching the checkpoint")
			if err := a.e.env.Checkpoints.Load(ctx, a.Task, a.checkpoint); err != nil {
				return err
			}
		}
	}
	return nil
}

// link makes the name in the task's folder by which it looks for its checkpoint lead to
// $MUSTER_CHECKPOINT.
func (a *Attempt) link(context.Context) error {
	c := a.Task.Spec.Checkpoint
	if c == nil || c.Path == "" {
		return nil
	}
	name := path.Clean(c.Path)
	if !filepath.IsLocal(filepath.FromSlash(name)) || name == "." {
		return run.Failf(muster.TaskInvalid, "the checkpoint folder %q would lie outside the task's folder", name)
	}
	root, err := a.Root()
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
	if err := root.Symlink(a.seen().checkpoint, name); err != nil {
		return run.Failf(muster.WorkerInternal, "the checkpoint folder %s cannot be made: %w", name, err)
	}
	return nil
}

// follow begins to save the checkpoint while the task runs.
func (a *Attempt) follow() {
	if a.saves() {
		a.e.checkpoints.keep(checkpointName(a.Task))
		a.saved = a.e.env.Checkpoints.Follow(a.Task, a.checkpoint, a.Say, func() { a.log.record(tasklog.Progress, run.SavedPoint()) })
	}
}

// unfollow ends the saving. A task that has ended, and not well, is saved once
// more.
func (a *Attempt) unfollow() {
	if a.saved == nil {
		return
	}
	last := a.lastSave()
	shown := time.AfterFunc(saveShown, func() { a.Step("saving the checkpoint") })
	a.saved(last)
	a.saved = nil
	if !shown.Stop() {
		a.Step("")
	}
}

// lastSave is how long the last saving may take, 0 if it is of no use.
func (a *Attempt) lastSave() time.Duration {
	if a.exit == nil {
		return 0 // it goes on running
	}
	why := a.stopped()
	switch {
	case why == nil && a.exit.Code == 0:
		return 0
	case why == nil:
		return saveAtLast
	case why.Reason == muster.WorkerLost:
		return 0 // the server has given the attempt up
	case why.Reason == muster.WorkerShutdown:
		return saveShutDown
	case why.Outcome == muster.AttemptCancelled:
		return saveCancelled
	}
	return saveAtLast
}
