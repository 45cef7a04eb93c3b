package process

import (
	"context"
	"path/filepath"

	"github.com/muster-dev/muster/internal/agent/run"
)

// prepareIsolation creates the limits on the task's resources and folders.
func (a *Attempt) prepareIsolation(context.Context) error {
	if a.executor.deps.Isolator == nil {
		return nil
	}
	var err error
	a.isolation, err = a.executor.deps.Isolator.Prepare(a.Task, a.runFolders())
	return err
}

func (a *Attempt) runFolders() run.Folders {
	return run.Folders{
		Base: a.base, Work: a.Dir, Out: a.outDir(), Tmp: filepath.Join(a.base, "tmp"), Checkpoint: a.checkpoint, Runtime: a.runtime,
		Read: a.setup.readable, Write: a.setup.writable,
	}
}
