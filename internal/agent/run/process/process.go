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

// KindHooks make another kind of process tasks, such as scripts.
type KindHooks struct {
	// Program returns the command to execute, nil for the spec's own. It may write
	// to the task's folder.
	Program func(ctx context.Context, a *Attempt) ([]string, error)
	// Runtime prepares what the program runs in and returns the folder of a Python
	// environment, or "".
	Runtime func(ctx context.Context, a *Attempt) (string, error)
	// OwnEntrypoint says that the kind brings its own program, whatever the spec says of one. Program is asked again for
	// a task that was to have a container and has none.
	OwnEntrypoint bool
}

// Executor runs the tasks of one kind as processes, or in containers.
type Executor struct {
	kind             string
	deps             *run.Deps
	dir              string // env.Dir, absolute
	tasks            string // the folder of attempts
	kindHooks        KindHooks
	phases           []phase
	baseEnv          []string // entries of the worker's environment that tasks may see
	processFolders   folderPool
	containerFolders folderPool // of attempts in containers
	checkpoints      checkpointDirs
}

// New returns the executor of the kind process.
func New(deps *run.Deps) (*Executor, error) { return NewKind(deps, muster.KindProcess, KindHooks{}) }

// NewKind returns an executor for a kind that is executed as a process.
func NewKind(deps *run.Deps, kind string, hooks KindHooks) (*Executor, error) {
	dir, err := filepath.Abs(deps.Dir)
	if err != nil {
		return nil, muster.Errorf(muster.Internal, "the worker's data dir %s has no absolute path: %w", deps.Dir, err)
	}
	if deps.Supervisor == nil {
		return nil, muster.Errorf(muster.Internal, "a worker without a supervisor cannot run processes")
	}
	for _, d := range []string{filepath.Join("tasks", PoolDir), filepath.Join("checkpoints", kind), "sdk"} {
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
	e := &Executor{kind: kind, deps: deps, dir: dir, kindHooks: hooks, baseEnv: inheritEnv(os.Environ())}
	if deps.Path != "" {
		e.baseEnv = setEnv(e.baseEnv, "PATH", deps.Path)
	}
	e.phases = e.newPhases()
	e.tasks = filepath.Join(dir, "tasks")
	e.processFolders.dir, e.processFolders.name = filepath.Join(e.tasks, PoolDir), kind+"-"
	e.processFolders.subdirs = []string{"work", "out", "tmp"}
	e.containerFolders.dir, e.containerFolders.name = e.processFolders.dir, e.processFolders.name+"box-"
	e.containerFolders.subdirs = append(slices.Clone(e.processFolders.subdirs), mountPoints()...)
	e.checkpoints.dir = filepath.Join(dir, "checkpoints", kind)
	e.checkpoints.store = deps.Checkpoints
	e.checkpoints.pool.dir, e.checkpoints.pool.name = e.processFolders.dir, e.processFolders.name+"checkpoint-"
	if err := e.processFolders.removeLeftovers(); err != nil {
		return nil, muster.Errorf(muster.Invalid, "the worker's data dir cannot be tidied: %w", err)
	}
	return e, nil
}

// PoolDir is the folder of spare folders, in that of tasks and apart from those of attempts: to rename in a folder takes
// the longer the more there is in it.
const PoolDir = ".spare"

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
func (e *Executor) Run(ctx context.Context, t *run.Task, reporter run.Reporter) muster.Report {
	a := &Attempt{Task: t, executor: e, reporter: reporter, log: newAttemptLog(ctx, e.deps, t.Attempt, reporter)}
	defer a.runCleanups()
	err := a.runPhases(ctx)
	if detaching(ctx) {
		if a.container != nil && a.proc == nil {
			a.removeContainer(context.WithoutCancel(ctx), detachRemoveTimeout) // it was not started: the next life knows nothing of it
		}
		a.removal.Wait()
		return muster.Report{Attempt: t.Attempt} // it is the next life's to make
	}
	if a.hasDevices { // it was not started
		err = errors.Join(err, a.releaseDevices(ctx))
	}
	r := a.report(ctx, err)
	if a.proc != nil && !a.isReproducible(&r) {
		a.proc.SaveReport(&r)
	}
	a.teardown(ctx, &r)
	return r
}

// runPhases goes through the phases of a task's life, as far as it gets.
func (a *Attempt) runPhases(ctx context.Context) error {
	for _, h := range a.executor.phases {
		if a.Task.Recovered != nil && !h.onRecovery || h.mode != 0 && h.mode != a.mode {
			continue
		}
		if ctx.Err() != nil && a.proc == nil && a.Task.Recovered == nil {
			return nil // told to stop before it was started
		}
		if err := h.run(a, ctx); err != nil {
			a.executor.deps.Log.Debug("attempt failed", slog.String("attempt", a.Task.Attempt.String()), slog.String("hook", h.name), slog.Any("error", err))
			return err
		}
	}
	return nil
}
