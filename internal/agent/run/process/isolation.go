package process

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
)

// containerRoot is where the folder of an attempt is in its container.
const containerRoot = "/muster"

// containerPaths are the places of an attempt in its container. Those of the last two folders are mounted on
// top of the attempt's own.
var containerPaths = taskPaths{
	work: containerRoot + "/work", out: containerRoot + "/out", tmp: containerRoot + "/tmp", events: containerRoot + "/events",
	checkpoint: containerRoot + "/checkpoint", modules: containerRoot + "/sdk",
} //nolint:gochecknoglobals // a constant

// mountPoints are the folders of an attempt on which others are mounted in its container. An engine
// would make them.
func mountPoints() []string {
	return []string{filepath.Base(containerPaths.checkpoint), filepath.Base(containerPaths.modules)}
}

// chooseMode decides what the program runs in.
func (a *Attempt) chooseMode(context.Context) error {
	a.mode = modeProcess
	if h := a.Task.Recovered; h != nil {
		if h.Start.Container != nil {
			a.mode = modeContainer
		}
		return nil
	}
	spec := a.Task.Spec
	if spec.Image == "" || spec.Isolation == muster.IsolationProcess {
		if a.executor.kind == muster.KindContainer {
			return run.Failf(muster.TaskInvalid, "there is nothing to run in: set image")
		}
		return nil
	}
	var engineErr error
	if a.executor.deps.Containers == nil {
		engineErr = errNoEngine
	} else {
		engineErr = a.executor.deps.Containers.Ready()
	}
	switch {
	case engineErr == nil:
		a.mode = modeContainer
		return nil
	case a.canRunAsProcess():
		a.LogLine("runs as a process: " + engineErr.Error())
		return nil
	}
	return run.Failf(muster.EngineFailed, "no container can be run on this worker: %w", engineErr)
}

// errNoEngine is why a worker that was given none runs no containers.
var errNoEngine = errors.New("this worker has no container engine")

// canRunAsProcess reports whether the task may run as a process where it cannot have a container.
func (a *Attempt) canRunAsProcess() bool {
	s := a.Task.Spec
	return s.Isolation == muster.IsolationAuto && a.executor.kind != muster.KindContainer && (s.Run != nil || s.Script != nil || a.executor.kindHooks.OwnEntrypoint)
}

// prepareContainer prepares all that a container has of its attempt.
func (a *Attempt) prepareContainer(ctx context.Context) error {
	if a.Task.Spec.Python != nil && !a.canRunAsProcess() {
		return run.Failf(muster.TaskInvalid, "no Python environment is built in a container: use an image that has the packages, and leave python out")
	}
	a.programArgv = a.argv
	for _, step := range []func(context.Context) error{a.linkCheckpoint, a.prepareCgroups, a.buildEnv, a.acquireDevices, a.applyLauncher} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// prepareCgroups makes the control groups that the container is to be in.
func (a *Attempt) prepareCgroups(context.Context) error {
	if a.executor.deps.Isolator == nil {
		return nil
	}
	var err error
	a.isolation, err = a.executor.deps.Isolator.PrepareContainer(a.Task)
	return err
}

// createContainer makes the container. If its engine cannot do what the task needs, one that may goes over to
// the worker.
func (a *Attempt) createContainer(ctx context.Context) error {
	ctrSpec := &run.ContainerSpec{
		Task: a.Task, Argv: a.argv, HasInterpreter: a.hasInterpreter, Env: a.env, Home: containerPaths.tmp, Isolation: a.isolation, OpenMounts: a.openMounts,
		Mounts: []run.Mount{
			{Source: a.base, Target: containerRoot},
			{Source: a.checkpoint, Target: containerPaths.checkpoint},
			{Source: filepath.Join(a.executor.dir, "sdk"), Target: containerPaths.modules, ReadOnly: true},
		},
	}
	ctrSpec.Mounts = append(ctrSpec.Mounts, a.setup.mounts...)
	if a.argv != nil {
		ctrSpec.Dir = containerPaths.work
	}
	ctr, err := a.executor.deps.Containers.Create(ctx, ctrSpec, a.LogLine, a.SetStep)
	if err != nil {
		if !a.canRunAsProcess() || !isEngineFault(err) || ctx.Err() != nil {
			return err
		}
		a.LogLine("runs as a process: " + err.Error())
		return a.fallBackToProcess(ctx)
	}
	a.container = ctr
	switch {
	case a.isolation == nil:
	case ctr.InCgroup:
		a.isolation.WatchPIDs = 0
	default:
		a.executor.deps.Isolator.Release(a.isolation)
		a.isolation.Cgroups, a.isolation.CgroupParent = nil, ""
	}
	if a.canRunAsProcess() {
		a.LogLine("runs in a container of " + ctr.ImageName)
	}
	return nil
}

// isEngineFault reports whether err is of the worker's engine or its owner, and not of the image or its registry.
func isEngineFault(err error) bool {
	f, ok := errors.AsType[*run.TaskError](err)
	return ok && (f.Reason == muster.Dependency || f.Reason == muster.EngineFailed || f.Reason == muster.Rejected)
}

// fallBackToProcess undoes what was prepared for a container.
func (a *Attempt) fallBackToProcess(ctx context.Context) error {
	if a.isolation != nil {
		a.executor.deps.Isolator.Release(a.isolation)
		a.isolation = nil
	}
	if err := a.releaseDevices(ctx); err != nil {
		return err
	}
	for _, name := range mountPoints() {
		if err := os.Remove(filepath.Join(a.base, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return run.Failf(muster.WorkerInternal, "the task's folder cannot be made ready for a process: %w", err)
		}
	}
	a.mode, a.env, a.argv = modeProcess, nil, a.programArgv
	if !a.executor.kindHooks.OwnEntrypoint {
		return nil
	}
	a.runCleanups()
	a.setup = programSetup{}
	return a.resolveProgram(ctx) // what it needs lies elsewhere now
}

// openMounts lets every user change what the container may: who its image runs as has no name here. The
// folder around the attempts' is closed to them.
func (a *Attempt) openMounts() error {
	f, err := os.OpenFile(a.eventsPath(), os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return run.Failf(muster.WorkerInternal, "the task's folder cannot be opened to its user: %w", err)
	}
	_ = f.Close() // nothing was written
	for _, dir := range []string{a.base, a.checkpoint} {
		if err := makeWritable(dir); err != nil {
			return run.Failf(muster.WorkerInternal, "the task's folder cannot be opened to its user: %w", err)
		}
	}
	return nil
}

// makeWritable lets every user read, change and, where its owner may, execute what is in a folder.
func makeWritable(dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }() // holds nothing that could be lost
	return fs.WalkDir(root.FS(), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Type()&fs.ModeSymlink != 0 {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		mode := info.Mode().Perm() | 0o666
		if d.IsDir() || info.Mode()&0o100 != 0 {
			mode |= 0o111
		}
		return root.Chmod(path, mode)
	})
}

// How long the end of an attempt waits for its container's removal. What an engine does not do in
// that time is swept later.
const (
	removeTimeout       = 30 * time.Second
	detachRemoveTimeout = 5 * time.Second // of one that is to be left
)

// startRemoval removes the container that has ended, while its outputs are looked at: they are not in it.
func (a *Attempt) startRemoval(ctx context.Context) error {
	a.removalStarted = true
	a.removal.Go(func() {
		removeCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		defer cancel()
		defer context.AfterFunc(ctx, func() {
			if detaching(ctx) {
				cancel() // the next life does it
			}
		})()
		a.removeContainer(removeCtx, removeTimeout)
	})
	return nil
}

// removeContainer removes the container, also one that still runs.
func (a *Attempt) removeContainer(ctx context.Context, timeout time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := errNoEngine
	if c := a.executor.deps.Containers; c != nil {
		err = c.Remove(ctx, a.container)
	}
	if err != nil {
		a.executor.deps.Log.Warn("a task's container is not removed yet", slog.String("attempt", a.Task.Attempt.String()), slog.String("container", a.container.ID), slog.Any("error", err))
	}
}
