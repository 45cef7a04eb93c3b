package process

import (
	"context"
	"path/filepath"

	"github.com/muster-dev/muster/internal/agent/run"
)

// limits makes what keeps the task to its resources and its folders.
func (a *Attempt) limits(context.Context) error {
	if a.e.env.Limits == nil {
		return nil
	}
	var err error
	a.confine, err = a.e.env.Limits.Confine(a.Task, a.folders())
	return err
}

func (a *Attempt) folders() run.Folders {
	return run.Folders{
		Base: a.base, Work: a.Dir, Out: a.out(), Tmp: filepath.Join(a.base, "tmp"), Checkpoint: a.checkpoint, Runtime: a.runtime,
		Read: a.needs.read, Write: a.needs.write,
	}
}
