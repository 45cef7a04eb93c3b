package process

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
	python "github.com/muster-dev/muster/sdk/python"
)

// Extras make another kind of process tasks, such as scripts.
type Extras struct {
	// Program returns the command to execute, nil for the spec's own. It may write
	// to the task's folder.
	Program func(ctx context.Context, a *Attempt) ([]string, error)
	// Runtime prepares what the program runs in and returns the folder of a Python
	// environment, or "".
	Runtime func(ctx context.Context, a *Attempt) (string, error)
	// Own says that the kind brings its own program, whatever the spec says of one. Program is asked again for
	// a task that was to have a container and has none.
	Own bool
}

// Executor runs the tasks of one kind as processes, or in containers.
type Executor struct {
	kind        string
	env         *run.Env
	dir         string // env.Dir, absolute
	tasks       string // the folder of attempts
	extras      Extras
	list        []hook
	inherited   []string // entries of the worker's environment that tasks may see
	folders     folders
	boxes       folders // of attempts in containers
	checkpoints checkpoints
}

// New returns the executor of the kind process.
func New(env *run.Env) (*Executor, error) { return NewKind(env, muster.KindProcess, Extras{}) }

// NewKind returns an executor for a kind that is executed as a process.
func NewKind(env *run.Env, kind string, extras Extras) (*Executor, error) {
	dir, err := filepath.Abs(env.Dir)
	if err != nil {
		return nil, muster.Errorf(muster.Internal, "the worker's data dir %s has no absolute path: %w", env.Dir, err)
	}
	if env.Supervisor == nil {
		return nil, muster.Errorf(muster.Internal, "a worker without a supervisor cannot run processes")
	}
	for _, d := range []string{filepath.Join("tasks", SpareDir), filepath.Join("checkpoints", kind), "sdk"} {
		err := os.MkdirAll(filepath.Join(dir, d), 0o700)
		if err == nil && d == "sdk" {
			err = os.Chmod(filepath.Join(dir, d), 0o755) //nolint:gosec // users of containers read it; the data dir is closed to others
		}
		if err != nil {
			return nil, muster.Errorf(muster.Invalid, "the worker's data dir cannot be used: %w", err)
		}
	}
	if err := installModule(filepath.Join(dir, "sdk")); err != nil {
		return nil, err
	}
	e := &Executor{kind: kind, env: env, dir: dir, extras: extras, inherited: inherited(os.Environ())}
	if env.Path != "" {
		e.inherited = set(e.inherited, "PATH", env.Path)
	}
	e.list = e.hooks()
	e.tasks = filepath.Join(dir, "tasks")
	e.folders.dir, e.folders.name = filepath.Join(e.tasks, SpareDir), kind+"-"
	e.folders.parts = []string{"work", "out", "tmp"}
	e.boxes.dir, e.boxes.name = e.folders.dir, e.folders.name+"box-"
	e.boxes.parts = append(slices.Clone(e.folders.parts), mountPoints()...)
	e.checkpoints.dir = filepath.Join(dir, "checkpoints", kind)
	e.checkpoints.keeper = env.Checkpoints
	e.checkpoints.folders.dir, e.checkpoints.folders.name = e.folders.dir, e.folders.name+"checkpoint-"
	if err := e.folders.clear(); err != nil {
		return nil, muster.Errorf(muster.Invalid, "the worker's data dir cannot be tidied: %w", err)
	}
	return e, nil
}

// SpareDir is the folder of spare folders, in that of tasks and apart from those of attempts: to rename in a folder takes
// the longer the more there is in it.
const SpareDir = ".spare"

// installModule puts the muster Python module where tasks find it.
func installModule(dir string) error {
	final := filepath.Join(dir, "muster.py")
	if b, err := os.ReadFile(final); err == nil && string(b) == python.Module() && os.Chmod(final, 0o644) == nil { //nolint:gosec // see New
		return nil // also on a full disk
	}
	tmp, err := os.CreateTemp(dir, ".muster-*")
	if err != nil {
		return muster.Errorf(muster.Invalid, "the worker's data dir cannot be written: %w", err)
	}
	_, err = tmp.WriteString(python.Module())
	if err == nil {
		err = tmp.Chmod(0o644)
	}
	if cerr := tmp.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(tmp.Name(), final)
	}
	if err != nil {
		_ = os.Remove(tmp.Name()) // it is of no use
		return muster.Errorf(muster.StorageFull, "the Python module for tasks cannot be written: %w", err)
	}
	return nil
}

// Kind is the kind that it runs.
func (e *Executor) Kind() string { return e.kind }

// Run executes one attempt, as run.Executor promises.
func (e *Executor) Run(ctx context.Context, t *run.Task, sink run.Sink) muster.Report {
	a := &Attempt{Task: t, e: e, sink: sink, log: logTo(ctx, e.env, t.Attempt, sink)}
	defer a.atEnd()
	err := a.live(ctx)
	if left(ctx) {
		if a.box != nil && a.proc == nil {
			a.remove(context.WithoutCancel(ctx), leaveWait) // it was not started: the next life knows nothing of it
		}
		a.removal.Wait()
		return muster.Report{Attempt: t.Attempt} // it is the next life's to make
	}
	if a.devices { // it was not started
		err = errors.Join(err, a.giveDevices(ctx))
	}
	r := a.report(ctx, err)
	if a.proc != nil && !a.plain(&r) {
		a.proc.Settle(&r)
	}
	a.cleanup(ctx, &r)
	return r
}

// live goes through the phases of a task's life, as far as it gets.
func (a *Attempt) live(ctx context.Context) error {
	for _, h := range a.e.list {
		if a.Task.Held != nil && !h.held || h.of != 0 && h.of != a.setting {
			continue
		}
		if ctx.Err() != nil && a.proc == nil && a.Task.Held == nil {
			return nil // told to stop before it was started
		}
		if err := h.run(a, ctx); err != nil {
			a.e.env.Log.Debug("attempt failed", slog.String("attempt", a.Task.Attempt.String()), slog.String("hook", h.name), slog.Any("error", err))
			return err
		}
	}
	return nil
}
