package process

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
)

// containerRoot is the attempt's folder in its container.
const containerRoot = "/muster"

// containerPaths are the paths of an attempt in its container. checkpoint and modules are mounts below containerRoot.
var containerPaths = taskPaths{
	work: containerRoot + "/work", out: containerRoot + "/out", tmp: containerRoot + "/tmp", events: containerRoot + "/events",
	checkpoint: containerRoot + "/checkpoint", modules: containerRoot + "/sdk",
} //nolint:gochecknoglobals // a constant

// mountPoints are the subfolders of an attempt for mounts in its container. An engine would create them as root.
func mountPoints() []string {
	return []string{filepath.Base(containerPaths.checkpoint), filepath.Base(containerPaths.modules)}
}

// chooseMode decides whether the program runs as a process or in a container.
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
			return run.Failf(muster.TaskInvalid, "a container task needs an image: set image")
		}
		return nil
	}
	engineErr := errNoEngine
	if c := a.executor.deps.Containers; c != nil {
		engineErr = c.Ready()
	}
	switch {
	case engineErr == nil:
		a.mode = modeContainer
		return nil
	case a.canRunAsProcess():
		a.LogLine("runs as a process: " + engineErr.Error())
		return nil
	}
	return run.Failf(muster.EngineFailed, "this worker cannot run containers: %w", engineErr)
}

var errNoEngine = errors.New("this worker has no container engine")

// canRunAsProcess reports whether the task may run as a process if there is no container for it.
func (a *Attempt) canRunAsProcess() bool {
	s := a.Task.Spec
	return s.Isolation == muster.IsolationAuto && a.executor.kind != muster.KindContainer && (s.Run != nil || s.Script != nil || a.executor.kindHooks.OwnEntrypoint)
}

// prepareIsolation creates the limits on the task's resources, and for a process on its folders.
func (a *Attempt) prepareIsolation(context.Context) (err error) {
	isolator := a.executor.deps.Isolator
	switch {
	case isolator == nil:
	case a.mode == modeContainer:
		a.isolation, err = isolator.PrepareContainer(a.Task)
	default:
		a.isolation, err = isolator.Prepare(a.Task, a.runFolders())
	}
	return err
}

func (a *Attempt) runFolders() run.Folders {
	return run.Folders{
		Base: a.base, Checkpoint: a.checkpoint, Runtime: a.runtime, Read: a.setup.readable, Write: a.setup.writable,
	}
}

// createContainer creates the container. If the engine fails, a task that may run as a process does so.
func (a *Attempt) createContainer(ctx context.Context) error {
	ctrSpec := &run.ContainerSpec{
		Task: a.Task, Argv: a.argv, HasInterpreter: a.hasInterpreter, Env: a.env, Home: containerPaths.tmp, Isolation: a.isolation, OpenMounts: a.openMounts,
		Prepared: a.runtime != "",
		Mounts: []run.Mount{
			{Source: a.base, Target: containerRoot},
			{Source: a.checkpoint, Target: containerPaths.checkpoint},
			{Source: filepath.Join(a.executor.deps.Dir, "sdk"), Target: containerPaths.modules, ReadOnly: true},
		},
	}
	if a.stdinPath() != "" {
		ctrSpec.Stdin = path.Join(containerRoot, stdinName)
	}
	if a.runtime != "" {
		ctrSpec.Path = path.Join(a.runtime, "bin")
	}
	ctrSpec.Mounts = append(ctrSpec.Mounts, a.setup.mounts...)
	if a.argv != nil {
		ctrSpec.Dir = containerPaths.work
	}
	ctr, err := a.executor.deps.Containers.Create(ctx, ctrSpec, a.LogLine, a.SetStep)
	if err != nil {
		return a.processInstead(ctx, err)
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

// processInstead makes a task that may run as a process do so, if the engine caused the error of its container. It returns other errors.
func (a *Attempt) processInstead(ctx context.Context, err error) error {
	if !a.canRunAsProcess() || !isEngineFault(err) || ctx.Err() != nil {
		return err
	}
	a.LogLine("runs as a process: " + err.Error())
	return a.fallBackToProcess(ctx)
}

// isEngineFault reports whether the worker's engine or settings caused err, and not the image or its registry.
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
			return run.Failf(muster.WorkerInternal, "prepare the task's folder for a process: %w", err)
		}
	}
	a.mode, a.env, a.argv, a.runtime = modeProcess, nil, a.programArgv, ""
	if !a.executor.kindHooks.OwnEntrypoint {
		return nil
	}
	a.runCleanups()
	a.setup = programSetup{}
	return a.resolveProgram(ctx) // its paths are different outside a container
}

// openMounts makes the container's folders writable for every user, because the user of the image is unknown here. Their parent
// folder is closed to other users of the machine.
func (a *Attempt) openMounts() error {
	f, err := os.OpenFile(a.eventsPath(), os.O_WRONLY|os.O_CREATE, 0o600)
	if err == nil {
		_ = f.Close() // nothing was written
		err = makeWritable(a.base)
	}
	if err == nil {
		err = makeWritable(a.checkpoint)
	}
	if err != nil {
		return run.Failf(muster.WorkerInternal, "open the task's folder to the container's user: %w", err)
	}
	return nil
}

// makeWritable lets every user read and write the files in a folder, and execute those that their owner may execute.
func makeWritable(dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
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

// Limits of the removal of a container. Containers that remain are swept later.
const (
	removeTimeout       = 30 * time.Second
	detachRemoveTimeout = 5 * time.Second
)

// startRemoval removes the exited container in the background: the outputs are not in it.
func (a *Attempt) startRemoval(ctx context.Context) error {
	a.removalStarted = true
	a.removal.Go(func() {
		removeCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		defer cancel()
		defer context.AfterFunc(ctx, func() {
			if detaching(ctx) {
				cancel() // the next incarnation removes it
			}
		})()
		a.removeContainer(removeCtx, removeTimeout)
	})
	return nil
}

// removeContainer removes the container, even if it still runs.
func (a *Attempt) removeContainer(ctx context.Context, timeout time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := errNoEngine
	if c := a.executor.deps.Containers; c != nil {
		err = c.Remove(ctx, a.container)
	}
	if err != nil {
		a.executor.deps.Log.Warn("removing a task's container failed", slog.String("attempt", a.Task.Attempt.String()), slog.String("container", a.container.ID), slog.Any("error", err))
	}
}
