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
	path, err := a.programPath()
	if err != nil {
		return err
	}
	state, err := a.Task.State()
	if err != nil {
		return run.Failf(muster.WorkerInternal, "the task cannot be noted for the worker's next life: %w", err)
	}
	s := &run.StartSpec{
		Attempt: a.Task.Attempt, State: state, Path: path, Argv: a.argv, Env: a.env, Dir: a.Dir,
		EnvTag: a.envTag(), Events: a.eventsPath(), Isolation: a.isolation, Container: a.container,
		LogCap:  cmp.Or(max(a.executor.deps.LogCap, 0), run.DefaultLogCap),
		LogRate: cmp.Or(max(a.executor.deps.LogRate, 0), run.DefaultLogRate),
		Timeout: a.Task.Spec.Timeout.Std(), Lease: a.lease(), Kill: a.killSpec(),
	}
	if a.firstStep != "" {
		a.SetStep(a.firstStep)
	}
	err = a.log.handOver(func(size int64) (run.Proc, error) {
		s.LogSize = size
		a.Task.ReleasePort()
		var err error
		a.proc, err = a.executor.deps.Supervisor.Start(ctx, s, a.reporter)
		return a.proc, err
	})
	if err != nil {
		a.proc = nil
		if _, isTaskErr := errors.AsType[*run.TaskError](err); isTaskErr || ctx.Err() != nil {
			return err
		}
		return run.Failf(muster.WorkerInternal, "the task's process cannot be started: %w", err)
	}
	if a.firstStep == "" && a.stepShown.Load() {
		a.SetStep("") // that of the preparation is over
	}
	a.reportStarted()
	return nil
}

// programPath is the file to be executed; a container's is looked up in it.
func (a *Attempt) programPath() (string, error) {
	if a.mode == modeContainer {
		return "", nil
	}
	return a.lookPath(a.argv[0])
}

// adopt goes on with the process that an earlier life of the worker started.
func (a *Attempt) adopt(context.Context) error {
	h := a.Task.Recovered
	if h == nil {
		return nil
	}
	a.setPaths()
	a.hasDevices = a.executor.deps.GPUs != nil // taken in that life
	a.isolation, a.container = h.Start.Isolation, h.Start.Container
	var err error
	if a.proc, err = a.executor.deps.Supervisor.Adopt(h, a.reporter); err != nil {
		a.proc = nil
		return run.Failf(muster.WorkerInternal, "the task's process cannot be taken up again: %w", err)
	}
	a.log.proc = a.proc
	a.checkpoint, err = a.executor.checkpoints.acquire(checkpointName(a.Task))
	if err != nil {
		a.executor.deps.Log.Warn("the checkpoint folder of a task is gone", slog.String("attempt", a.Task.Attempt.String()), slog.Any("error", err))
	}
	a.reportStarted()
	return nil
}

// reportStarted says that the main process runs.
func (a *Attempt) reportStarted() {
	a.started = a.proc.Started()
	a.reporter.Started(a.started)
	a.reporter.Process(a.proc.Pid())
}

// Defaults of the spec, for tasks that did not go through muster.Spec.Normalize.
const (
	defaultSignal = "SIGTERM"
	defaultGrace  = muster.Duration(10 * time.Second)
	defaultLease  = muster.Duration(10 * time.Minute)
)

// killSpec is how the task is stopped.
func (a *Attempt) killSpec() muster.Kill {
	k := a.Task.Spec.Kill
	return muster.Kill{Signal: cmp.Or(k.Signal, defaultSignal), Grace: cmp.Or(max(k.Grace, 0), defaultGrace)}
}

// lease is how long the task goes on while the server is away.
func (a *Attempt) lease() time.Duration {
	return cmp.Or(max(a.Task.Spec.Disconnect.Grace, 0), defaultLease).Std()
}
