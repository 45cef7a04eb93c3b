package process

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"path/filepath"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
)

// start makes the supervisor start the main process and hands the log over to it.
func (a *Attempt) start(ctx context.Context) error {
	path := "" // a container looks it up itself
	if a.mode != modeContainer {
		var err error
		if path, err = a.lookPath(a.argv[0]); err != nil {
			return err
		}
	}
	state, err := a.Task.State()
	if err != nil {
		return run.Failf(muster.WorkerInternal, "encode the task's state: %w", err)
	}
	spec := a.Task.Spec // its kill settings and its disconnect grace may be zero
	s := &run.StartSpec{
		Attempt: a.Task.Attempt, State: state, Path: path, Argv: a.argv, Env: a.env, Dir: a.Dir,
		EnvTag: a.envTag(), Events: a.eventsPath(), Isolation: a.isolation, Container: a.container, Stdin: a.stdinPath(),
		LogCap: a.logCap(), LogRate: a.executor.deps.LogRate,
		Timeout: a.timeout().Std(), Lease: spec.Disconnect.Grace.Or(muster.DefaultDisconnectGrace).Std(),
		Kill:   muster.Kill{Signal: cmp.Or(spec.Kill.Signal, muster.DefaultKillSignal), Grace: spec.Kill.Grace.Or(muster.DefaultKillGrace)},
		Redact: a.Task.Redact,
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
		return run.Failf(muster.WorkerInternal, "start the task's process: %w", err)
	}
	if a.container != nil {
		a.executor.deps.Containers.Started(a.container)
	}
	if a.firstStep == "" && a.stepShown.Load() {
		a.SetStep("")
	}
	a.reportStarted()
	return nil
}

// timeout returns the task's timeout, or that of the worker's owner for tasks that set none. The log says if it is the owner's.
func (a *Attempt) timeout() muster.Duration {
	own := a.executor.deps.TaskTimeout
	if a.Task.Spec.Timeout > 0 || own == 0 {
		return a.Task.Spec.Timeout
	}
	a.LogLine("the owner of this worker limits tasks without a timeout to " + own.String())
	return own
}

// logCap returns how many bytes of the task's output are kept: what the job sets, at most what the worker's owner allows. The log says if
// that is less.
func (a *Attempt) logCap() int64 {
	job, owner := int64(a.Task.Spec.LogCap), a.executor.deps.LogCap
	if owner <= 0 || job > 0 && job <= owner {
		return cmp.Or(job, int64(muster.DefaultLogCap))
	}
	if job > 0 {
		a.LogLine("the owner of this worker limits logs to " + muster.Size(owner).String())
	}
	return owner
}

// adopt recovers the process that an earlier incarnation of the worker started.
func (a *Attempt) adopt(context.Context) error {
	h := a.Task.Recovered
	if h == nil {
		return nil
	}
	a.setPaths()
	a.hasDevices = a.executor.deps.GPUs != nil
	a.isolation, a.container = h.Start.Isolation, h.Start.Container
	var err error
	if a.proc, err = a.executor.deps.Supervisor.Adopt(h, a.reporter); err != nil {
		a.proc = nil
		return run.Failf(muster.WorkerInternal, "recover the task's process: %w", err)
	}
	a.log.proc = a.proc
	a.checkpoint, err = a.executor.checkpoints.acquire(checkpointName(a.Task), false)
	if err != nil {
		a.executor.deps.Log.Warn("recovering a task's checkpoint folder failed", slog.String("attempt", a.Task.Attempt.String()), slog.Any("error", err))
	}
	a.reportStarted()
	return nil
}

func (a *Attempt) reportStarted() {
	a.started = a.proc.Started()
	a.reporter.Started(a.started)
	a.reporter.Process(a.proc.Pid())
	if r := a.executor.deps.Access; r != nil {
		a.removeAccess = r.Add(a.Task.Attempt, a.access())
	}
}

// access returns how clients reach the running attempt.
func (a *Attempt) access() *run.Access {
	id, deps, container := a.Task.Attempt, a.executor.deps, a.container
	p := a.paths()
	x := &run.Access{
		LogLine: a.LogLine,
		Folders: []run.AccessFolder{
			{TaskPath: p.work, Dir: a.Dir},
			{Variable: "MUSTER_OUT", TaskPath: p.out, Dir: a.outDir()},
			{Variable: "TMPDIR", TaskPath: p.tmp, Dir: filepath.Join(a.base, "tmp")},
		},
		Exec: func(ctx context.Context, x *run.ExecSpec) (run.ExecProc, error) {
			if container != nil {
				return deps.Containers.Exec(ctx, container, x)
			}
			return deps.Execer.Exec(ctx, id, x)
		},
	}
	if a.checkpoint != "" {
		x.Folders = append(x.Folders, run.AccessFolder{Variable: "MUSTER_CHECKPOINT", TaskPath: p.checkpoint, Dir: a.checkpoint})
	}
	return x
}
