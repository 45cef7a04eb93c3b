package process

import (
	"errors"
	"io/fs"
	"log/slog"
	"time"
)

// cleanup removes the attempt's folders and its record.
func (a *Attempt) cleanup() {
	if a.events.file != nil {
		_ = a.events.file.Close()
	}
	if a.checkpoint != "" {
		a.e.checkpoints.drop(a.Task.Attempt.Task, time.Now())
	}
	if a.base != "" && !a.removeEmpty() {
		if err := removeAll(a.base); err != nil {
			a.e.env.Log.Warn("a task's folder cannot be removed", slog.String("folder", a.base), slog.Any("error", err))
		}
	}
	if a.e.env.Pids != nil && a.exited {
		if err := a.e.env.Pids.Delete(a.Task.Attempt); err != nil {
			a.e.env.Log.Warn("the record of an ended process stays", slog.Any("error", err))
		}
	}
}

// removeEmpty removes the folders of a task that left no file, which is most of
// the small ones, for a fraction of the cost of looking through them.
func (a *Attempt) removeEmpty() bool {
	for _, dir := range []string{a.base + "/tmp", a.Dir, a.out()} {
		if err := removeFolder(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return false
		}
	}
	return removeFolder(a.base) == nil
}
