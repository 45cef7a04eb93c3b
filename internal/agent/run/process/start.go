package process

import (
	"context"
	"log/slog"
	"os"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/tasklog"
)

// start starts the main process and the reading of its output.
func (a *Attempt) start(ctx context.Context) error {
	path, err := a.lookPath(a.argv[0])
	if err != nil {
		return err
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		return run.Failf(muster.WorkerInternal, "no pipe for the task's output: %w", err)
	}
	errR, errW, err := os.Pipe()
	if err != nil {
		_ = outR.Close()
		_ = outW.Close()
		return run.Failf(muster.WorkerInternal, "no pipe for the task's output: %w", err)
	}
	a.e.oom.refresh(time.Now())
	a.kin, err = a.e.env.Kin().Start(a.mark(), func() (pid int, err error) {
		a.proc, err = spawn(path, a.argv, a.env, a.Dir, a.e.null, outW, errW)
		return a.proc.pid, err
	})
	_ = outW.Close()
	_ = errW.Close()
	if err != nil {
		_ = outR.Close()
		_ = errR.Close()
		return startError(a.argv[0], err)
	}
	a.started = time.Now()
	if a.e.env.Pids != nil {
		if err := a.e.env.Pids.Put(a.Task.Attempt, a.kin); err != nil {
			a.e.env.Log.Warn("a task's process is not recorded: if the worker crashes it stays", slog.Any("error", err))
		}
	}
	if a.stepped.Load() {
		a.Step("") // that of the preparation is over
	}
	a.pipes.start(ctx, a, outR, tasklog.Stdout)
	a.pipes.start(ctx, a, errR, tasklog.Stderr)
	a.sink.Started(muster.TimeOf(a.started))
	return nil
}
