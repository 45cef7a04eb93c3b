package process

import (
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
	if a.base != "" {
		if err := a.e.folders.give(a.base); err != nil {
			a.e.env.Log.Warn("a task's folder cannot be removed", slog.String("folder", a.base), slog.Any("error", err))
		}
	}
	if a.e.env.Pids != nil && a.exited {
		if err := a.e.env.Pids.Delete(a.Task.Attempt); err != nil {
			a.e.env.Log.Warn("the record of an ended process stays", slog.Any("error", err))
		}
	}
}
