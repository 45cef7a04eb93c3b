package process

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
)

// start has the supervisor start the main process, and hands the log over to it.
func (a *Attempt) start(ctx context.Context) error {
	path, err := a.path()
	if err != nil {
		return err
	}
	state, err := a.Task.State()
	if err != nil {
		return run.Failf(muster.WorkerInternal, "the task cannot be noted for the worker's next life: %w", err)
	}
	s := &run.Start{
		Attempt: a.Task.Attempt, State: state, Path: path, Argv: a.argv, Env: a.env, Dir: a.Dir,
		Mark: a.mark(), Events: a.eventsPath(), Confine: a.confine, Container: a.box,
		LogCap:  cmp.Or(max(a.e.env.LogCap, 0), run.DefaultLogCap),
		LogRate: cmp.Or(max(a.e.env.LogRate, 0), run.DefaultLogRate),
		Timeout: a.Task.Spec.Timeout.Std(), Lease: a.lease(), Kill: a.kill(),
	}
	if a.first != "" {
		a.Step(a.first)
	}
	err = a.log.handOver(func(size int64) (run.Proc, error) {
		s.LogSize = size
		a.Task.ReleasePort()
		var err error
		a.proc, err = a.e.env.Supervisor.Start(ctx, s, a.sink)
		return a.proc, err
	})
	if err != nil {
		a.proc = nil
		if _, told := errors.AsType[*run.TaskError](err); told || ctx.Err() != nil {
			return err
		}
		return run.Failf(muster.WorkerInternal, "the task's process cannot be started: %w", err)
	}
	if a.first == "" && a.stepped.Load() {
		a.Step("") // that of the preparation is over
	}
	a.began()
	return nil
}

// path is the file to be executed; a container's is looked up in it.
func (a *Attempt) path() (string, error) {
	if a.setting == inContainer {
		return "", nil
	}
	return a.lookPath(a.argv[0])
}

// adopt goes on with the process that an earlier life of the worker started.
func (a *Attempt) adopt(context.Context) error {
	h := a.Task.Held
	if h == nil {
		return nil
	}
	a.place()
	a.devices = a.e.env.GPUs != nil // taken in that life
	a.confine, a.box = h.Start.Confine, h.Start.Container
	var err error
	if a.proc, err = a.e.env.Supervisor.Adopt(h, a.sink); err != nil {
		a.proc = nil
		return run.Failf(muster.WorkerInternal, "the task's process cannot be taken up again: %w", err)
	}
	a.log.proc = a.proc
	a.checkpoint, err = a.e.checkpoints.take(checkpointName(a.Task))
	if err != nil {
		a.e.env.Log.Warn("the checkpoint folder of a task is gone", slog.String("attempt", a.Task.Attempt.String()), slog.Any("error", err))
	}
	a.began()
	return nil
}

// began says that the main process runs.
func (a *Attempt) began() {
	a.started = a.proc.Started()
	a.sink.Started(a.started)
	a.sink.Process(a.proc.Pid())
}

// Defaults of the spec, for tasks that did not go through muster.Spec.Normalize.
const (
	defaultSignal = "SIGTERM"
	defaultGrace  = muster.Duration(10 * time.Second)
	defaultLease  = muster.Duration(10 * time.Minute)
)

// kill is how the task is stopped.
func (a *Attempt) kill() muster.Kill {
	k := a.Task.Spec.Kill
	return muster.Kill{Signal: cmp.Or(k.Signal, defaultSignal), Grace: cmp.Or(max(k.Grace, 0), defaultGrace)}
}

// lease is how long the task goes on while the server is away.
func (a *Attempt) lease() time.Duration {
	return cmp.Or(max(a.Task.Spec.Disconnect.Grace, 0), defaultLease).Std()
}
