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

// boxTop is where the folder of an attempt is in its container.
const boxTop = "/muster"

// boxed are the places of an attempt in its container. Those of the last two folders are mounted on
// top of the attempt's own.
var boxed = places{
	work: boxTop + "/work", out: boxTop + "/out", tmp: boxTop + "/tmp", events: boxTop + "/events",
	checkpoint: boxTop + "/checkpoint", modules: boxTop + "/sdk",
} //nolint:gochecknoglobals // a constant

// mountPoints are the folders of an attempt on which others are mounted in its container. An engine
// would make them.
func mountPoints() []string {
	return []string{filepath.Base(boxed.checkpoint), filepath.Base(boxed.modules)}
}

// isolate decides what the program runs in.
func (a *Attempt) isolate(context.Context) error {
	a.setting = onWorker
	if h := a.Task.Held; h != nil {
		if h.Start.Container != nil {
			a.setting = inContainer
		}
		return nil
	}
	spec := a.Task.Spec
	if spec.Image == "" || spec.Isolation == muster.IsolationProcess {
		if a.e.kind == muster.KindContainer {
			return run.Failf(muster.TaskInvalid, "there is nothing to run in: set image")
		}
		return nil
	}
	var why error
	if a.e.env.Containers == nil {
		why = errNoEngine
	} else {
		why = a.e.env.Containers.Ready()
	}
	switch {
	case why == nil:
		a.setting = inContainer
		return nil
	case a.maySettle():
		a.Say("runs as a process: " + why.Error())
		return nil
	}
	return run.Failf(muster.EngineFailed, "no container can be run on this worker: %w", why)
}

// errNoEngine is why a worker that was given none runs no containers.
var errNoEngine = errors.New("this worker has no container engine")

// maySettle reports whether the task may run as a process where it cannot have a container.
func (a *Attempt) maySettle() bool {
	s := a.Task.Spec
	return s.Isolation == muster.IsolationAuto && a.e.kind != muster.KindContainer && (s.Run != nil || s.Script != nil || a.e.extras.Own)
}

// pack prepares all that a container has of its attempt.
func (a *Attempt) pack(ctx context.Context) error {
	if a.Task.Spec.Python != nil && !a.maySettle() {
		return run.Failf(muster.TaskInvalid, "no Python environment is built in a container: use an image that has the packages, and leave python out")
	}
	a.bare = a.argv
	for _, phase := range []func(context.Context) error{a.link, a.group, a.environ, a.gpu, a.launch} {
		if err := phase(ctx); err != nil {
			return err
		}
	}
	return nil
}

// group makes the control groups that the container is to be in.
func (a *Attempt) group(context.Context) error {
	if a.e.env.Limits == nil {
		return nil
	}
	var err error
	a.confine, err = a.e.env.Limits.Contain(a.Task)
	return err
}

// contain makes the container. If its engine cannot do what the task needs, one that may goes over to
// the worker.
func (a *Attempt) contain(ctx context.Context) error {
	box := &run.Box{
		Task: a.Task, Argv: a.argv, Shell: a.whole, Env: a.env, Home: boxed.tmp, Groups: a.confine, Open: a.open,
		Mounts: []run.Mount{
			{Source: a.base, Target: boxTop},
			{Source: a.checkpoint, Target: boxed.checkpoint},
			{Source: filepath.Join(a.e.dir, "sdk"), Target: boxed.modules, ReadOnly: true},
		},
	}
	box.Mounts = append(box.Mounts, a.needs.mounts...)
	if a.argv != nil {
		box.Dir = boxed.work
	}
	made, err := a.e.env.Containers.Make(ctx, box, a.Say, a.Step)
	if err != nil {
		if !a.maySettle() || !incapable(err) || ctx.Err() != nil {
			return err
		}
		a.Say("runs as a process: " + err.Error())
		return a.settle(ctx)
	}
	a.box = made
	switch {
	case a.confine == nil:
	case made.Grouped:
		a.confine.WatchPIDs = 0
	default:
		a.e.env.Limits.Release(a.confine)
		a.confine.Cgroups, a.confine.Parent = nil, ""
	}
	if a.maySettle() {
		a.Say("runs in a container of " + made.Name)
	}
	return nil
}

// incapable reports whether err is of the worker's engine or its owner, and not of the image or its registry.
func incapable(err error) bool {
	f, ok := errors.AsType[*run.TaskError](err)
	return ok && (f.Reason == muster.Dependency || f.Reason == muster.EngineFailed || f.Reason == muster.Rejected)
}

// settle undoes what was prepared for a container.
func (a *Attempt) settle(ctx context.Context) error {
	if a.confine != nil {
		a.e.env.Limits.Release(a.confine)
		a.confine = nil
	}
	if err := a.giveDevices(ctx); err != nil {
		return err
	}
	for _, name := range mountPoints() {
		if err := os.Remove(filepath.Join(a.base, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return run.Failf(muster.WorkerInternal, "the task's folder cannot be made ready for a process: %w", err)
		}
	}
	a.setting, a.env, a.argv = onWorker, nil, a.bare
	if !a.e.extras.Own {
		return nil
	}
	a.atEnd()
	a.needs = needs{}
	return a.program(ctx) // what it needs lies elsewhere now
}

// open lets every user change what the container may: who its image runs as has no name here. The
// folder around the attempts' is closed to them.
func (a *Attempt) open() error {
	f, err := os.OpenFile(a.eventsPath(), os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return run.Failf(muster.WorkerInternal, "the task's folder cannot be opened to its user: %w", err)
	}
	_ = f.Close() // nothing was written
	for _, dir := range []string{a.base, a.checkpoint} {
		if err := open(dir); err != nil {
			return run.Failf(muster.WorkerInternal, "the task's folder cannot be opened to its user: %w", err)
		}
	}
	return nil
}

// open lets every user read, change and, where its owner may, execute what is in a folder.
func open(dir string) error {
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
	removeWait = 30 * time.Second
	leaveWait  = 5 * time.Second // of one that is to be left
)

// unmake removes the container that has ended, while its outputs are looked at: they are not in it.
func (a *Attempt) unmake(ctx context.Context) error {
	a.unmade = true
	a.removal.Go(func() {
		going, cancel := context.WithCancel(context.WithoutCancel(ctx))
		defer cancel()
		defer context.AfterFunc(ctx, func() {
			if left(ctx) {
				cancel() // the next life does it
			}
		})()
		a.remove(going, removeWait)
	})
	return nil
}

// remove removes the container, also one that still runs.
func (a *Attempt) remove(ctx context.Context, atMost time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, atMost)
	defer cancel()
	err := errNoEngine
	if c := a.e.env.Containers; c != nil {
		err = c.Remove(ctx, a.box)
	}
	if err != nil {
		a.e.env.Log.Warn("a task's container is not removed yet", slog.String("attempt", a.Task.Attempt.String()), slog.String("container", a.box.ID), slog.Any("error", err))
	}
}
