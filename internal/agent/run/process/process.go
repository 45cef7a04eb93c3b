package process

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/redact"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/atomicfile"
	python "github.com/muster-dev/muster/sdk/python"
)

// KindHooks define another kind of process tasks, such as scripts.
type KindHooks struct {
	// Program returns the command to execute, nil for that of the spec. It may write to the task's folder.
	Program func(ctx context.Context, a *Attempt) ([]string, error)
	// Python builds the Python environment of a task, and returns its folder. nil: the kind has none.
	Python func(ctx context.Context, r *run.PythonRequest, observer run.Observer) (string, error)
	// OwnEntrypoint is true for a kind with its own program. Program is called again for a task that falls back from a container
	// to a process.
	OwnEntrypoint bool
}

// Executor runs the tasks of one kind as processes, or in containers.
type Executor struct {
	kind             string
	deps             *Deps
	tasks            string // the folder of attempts
	kindHooks        KindHooks
	baseEnv          []string // entries of the worker's environment that tasks may see
	processFolders   folderPool
	containerFolders folderPool // of attempts in containers
	checkpoints      checkpointDirs
}

// New returns the executor of the kind process.
func New(deps *Deps) (*Executor, error) { return NewKind(deps, muster.KindProcess, KindHooks{}) }

// NewKind returns an executor for a kind that is executed as a process.
func NewKind(deps *Deps, kind string, hooks KindHooks) (*Executor, error) {
	dir := deps.Dir
	for _, d := range []string{filepath.Join("tasks", PoolDir), filepath.Join("checkpoints", kind), "sdk"} {
		err := os.MkdirAll(filepath.Join(dir, d), 0o700)
		if err == nil && d == "sdk" {
			err = os.Chmod(filepath.Join(dir, d), 0o755) //nolint:gosec // container users read it; the data dir is closed to others
		}
		if err != nil {
			return nil, muster.Errorf(muster.Invalid, "create folders in the worker's data dir: %w", err)
		}
	}
	if err := installModule(filepath.Join(dir, "sdk")); err != nil {
		return nil, err
	}
	e := &Executor{kind: kind, deps: deps, kindHooks: hooks, baseEnv: inheritEnv(os.Environ())}
	if deps.Path != "" {
		e.baseEnv = run.SetEnv(e.baseEnv, "PATH", deps.Path)
	}
	e.tasks = filepath.Join(dir, "tasks")
	e.processFolders.dir, e.processFolders.name = filepath.Join(e.tasks, PoolDir), kind+"-"
	e.processFolders.subdirs = []string{"work", "out", "tmp"}
	e.containerFolders.dir, e.containerFolders.name = e.processFolders.dir, e.processFolders.name+"box-"
	e.containerFolders.subdirs = append(slices.Clone(e.processFolders.subdirs), mountPoints()...)
	e.checkpoints.dir = filepath.Join(dir, "checkpoints", kind)
	e.checkpoints.store = deps.Checkpoints
	e.checkpoints.pool.dir, e.checkpoints.pool.name = e.processFolders.dir, e.processFolders.name+"checkpoint-"
	if err := e.processFolders.removeLeftovers(); err != nil {
		return nil, muster.Errorf(muster.Invalid, "remove old folders from the worker's data dir: %w", err)
	}
	return e, nil
}

// PoolDir is the folder of pooled folders, below the one of tasks. It is separate because renames are slow in large folders.
const PoolDir = ".spare"

// installModule writes the muster Python module for tasks.
func installModule(dir string) error {
	final := filepath.Join(dir, "muster.py")
	if b, err := os.ReadFile(final); err == nil && string(b) == python.Module() && os.Chmod(final, 0o644) == nil { //nolint:gosec // see New
		return nil // also on a full disk
	}
	if err := atomicfile.Write(final, []byte(python.Module()), 0o644); err != nil {
		return muster.Errorf(muster.StorageFull, "write the Python module for tasks: %w", err)
	}
	return nil
}

// Kind returns the kind that e runs.
func (e *Executor) Kind() string { return e.kind }

// Run executes one attempt, as run.Executor promises.
func (e *Executor) Run(ctx context.Context, t *run.Task, reporter run.Reporter) muster.Report {
	a := &Attempt{Task: t, executor: e, reporter: reporter, log: newAttemptLog(ctx, e.deps, t.Attempt, reporter), redactor: redact.New(t.Redact)}
	defer a.runCleanups()
	err := a.runPhases(ctx)
	if detaching(ctx) {
		if a.container != nil && a.proc == nil {
			a.removeContainer(context.WithoutCancel(ctx), detachRemoveTimeout) // it was not started: the next incarnation does not know it
		}
		a.removal.Wait()
		return muster.Report{Attempt: t.Attempt} // the next incarnation reports
	}
	if a.hasDevices { // a phase before releaseDevices failed
		err = errors.Join(err, a.releaseDevices(ctx))
	}
	r := a.report(ctx, err)
	a.redactReport(&r)
	if a.proc != nil && !a.isReproducible(&r) {
		a.proc.SaveReport(&r)
	}
	a.teardown(ctx, &r)
	return r
}

func (a *Attempt) runPhases(ctx context.Context) error {
	for i := range phases {
		p := &phases[i]
		if a.Task.Recovered != nil && !p.onRecovery || p.mode != 0 && p.mode != a.mode {
			continue
		}
		if ctx.Err() != nil && a.proc == nil && a.Task.Recovered == nil {
			return nil // stopped before the start
		}
		if err := p.run(a, ctx); err != nil {
			a.executor.deps.Log.Debug("attempt failed", slog.String("attempt", a.Task.Attempt.String()), slog.String("phase", p.name), slog.String("error", a.redactor.String(err.Error())))
			return err
		}
	}
	return nil
}
