package python

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
)

// Config configures Envs.
type Config struct {
	Folder     string        // the root, relative to the data dir
	Timeout    time.Duration // of a build, including the wait for another process that builds the same
	MaxIdle    time.Duration // removal after the last use, even within the budget
	Budget     muster.Size   // disk space for environments and the cache; 0 means no limit
	Standalone bool          // not a worker: a starting worker does not kill its tools, and it does not remove environments after a build
}

// Envs builds and stores environments. Its methods may be called concurrently.
type Envs struct {
	cfg  Config
	root string
	log  *slog.Logger
	tool tool

	mu           sync.Mutex
	checks       map[string]*lastCheck // by environment
	interpreters map[string]string     // by requested version
}

// New returns the environments that tasks ask for.
func New(deps *run.Deps) *Envs {
	return NewEnvs(deps, Config{Timeout: 30 * time.Minute, MaxIdle: 30 * 24 * time.Hour})
}

// NewEnvs returns environments below the worker's data dir.
func NewEnvs(deps *run.Deps, cfg Config) *Envs {
	return &Envs{
		cfg:          cfg,
		root:         filepath.Join(deps.Dir, cfg.Folder),
		log:          deps.Log,
		tool:         tool{deps: deps, standalone: cfg.Standalone, lock: make(chan struct{}, 1)},
		checks:       map[string]*lastCheck{},
		interpreters: map[string]string{},
	}
}

// Path returns the folder of an environment.
func (e *Envs) Path(name string) string { return filepath.Join(e.root, "envs", name) }

// Request asks for an environment.
type Request struct {
	Name  string                          // of the environment
	Title string                          // in messages
	Spec  func(ctx context.Context) *Spec // it is only called for a build
}

// Get returns the folder of an environment and builds it if necessary. A failed build is a TaskError: DiskFull, or Dependency with uv's
// last output.
func (e *Envs) Get(ctx context.Context, r Request, observer run.Observer) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, e.cfg.Timeout)
	defer cancel()
	l, err := e.lock(ctx, &r, false, observer)
	if err != nil {
		return "", err
	}
	err = e.use(ctx, r.Name)
	l.release()
	if err == nil {
		return e.Path(r.Name), nil
	}
	if l, err = e.lock(ctx, &r, true, observer); err != nil {
		return "", err
	}
	if damage := e.use(ctx, r.Name); damage != nil { // no other process was faster
		if err := e.build(ctx, &r, damage, l.publishSteps(r.Title, observer)); err != nil {
			l.remove()
			return "", err
		}
	}
	l.release()
	if !e.cfg.Standalone {
		e.prune(ctx)
	}
	return e.Path(r.Name), nil
}

// use returns why an environment cannot be used, ErrAbsent if it does not exist. It marks a usable one as used. The caller holds the
// lock.
func (e *Envs) use(ctx context.Context, name string) error {
	env, err := e.Load(name)
	if err != nil {
		return err
	}
	if err := e.recheck(ctx, env); err != nil {
		return err
	}
	now := time.Now()
	if err := os.Chtimes(filepath.Join(e.Path(name), markerFile), now, now); err != nil {
		e.log.Warn("marking a Python environment as used failed", slog.String("name", name), slog.Any("error", err))
	}
	return nil
}

// recheckFactor limits the checks of an environment's files to 1/20 of the time.
const recheckFactor = 20

// lastCheck is the last successful check of an environment. It is locked during a check: tasks that start together share one.
type lastCheck struct {
	sync.Mutex

	validUntil time.Time
}

// recheck is Check, but its success is valid for recheckFactor times its duration.
func (e *Envs) recheck(ctx context.Context, env *Env) error {
	e.mu.Lock()
	last := e.checks[env.Name]
	if last == nil {
		last = new(lastCheck)
		e.checks[env.Name] = last
	}
	e.mu.Unlock()
	last.Lock()
	defer last.Unlock()
	begun := time.Now()
	if begun.Before(last.validUntil) {
		return env.checkInterpreterFile(e.Path(env.Name))
	}
	if err := e.Check(ctx, env); err != nil {
		return err
	}
	now := time.Now()
	last.validUntil = now.Add(recheckFactor * now.Sub(begun))
	return nil
}

// Check returns an error if the interpreter of an environment does not work, or if files of its packages are missing, truncated or changed.
// The interpreter of an image is not executed.
func (e *Envs) Check(ctx context.Context, env *Env) error {
	dir := e.Path(env.Name)
	if err := env.checkFiles(ctx, dir); err != nil || env.Image != "" {
		return err
	}
	err := e.tool.runIsolated(ctx, []string{dir}, nil, dir, e.tool.env(), outputHandler{onLine: func(string) {}}, InterpreterPath(dir), "-c", "import sys; sys.exit(sys.prefix == sys.base_prefix)")
	if err != nil {
		return fmt.Errorf("its interpreter does not work: %w", err)
	}
	return nil
}

// build builds an environment. damage is the error of use. The caller holds the exclusive lock.
func (e *Envs) build(ctx context.Context, r *Request, damage error, observer run.Observer) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if !errors.Is(damage, ErrAbsent) {
		e.log.Log(ctx, e.failureLevel(), "rebuilding a damaged Python environment", slog.String("name", r.Name), slog.Any("found", damage))
		observer.LogLine(r.Title + " is damaged, rebuilding it (dependency recovery): " + damage.Error())
	}
	e.sweep(r.Name)
	begun := time.Now()
	b := &build{Envs: e, title: r.Title, spec: r.Spec(ctx), observer: observer}
	if errors.Is(damage, errChanged) {
		e.cleanCacheOf(ctx, b.spec)
		fresh := *b.spec
		fresh.NoCache = true // also without a cache that the operator set
		b.spec = &fresh
	}
	e.log.Info("building a Python environment", slog.String("name", r.Name), slog.String("torch", b.spec.TorchBackend))
	rec, err := b.install(ctx, r.Name)
	if err != nil {
		e.log.Log(ctx, e.failureLevel(), "building a Python environment failed", slog.String("name", r.Name), slog.Any("error", err))
		if t, ok := errors.AsType[*run.TaskError](err); ok && t.Reason == muster.DiskFull {
			e.cleanCacheOf(ctx, b.spec) // the downloads of a failed build only waste space
		}
		return err
	}
	took := time.Since(begun)
	observer.LogLine(fmt.Sprintf("%s: %s, %s, built in %.1f s", r.Title, packageCount(len(rec.Packages)), rec.Size, took.Seconds()))
	e.log.Info("Python environment ready", slog.String("name", r.Name), slog.Duration("after", took.Round(time.Second)))
	return nil
}

// failureLevel is the log level of failures that the caller also reports: a command at a terminal shows them only once.
func (e *Envs) failureLevel() slog.Level {
	if e.cfg.Standalone {
		return slog.LevelInfo
	}
	return slog.LevelWarn
}

// RunScript runs a trusted script with an interpreter and passes each line of its output to logLine.
func (e *Envs) RunScript(ctx context.Context, interpreter, script string, logLine func(line string), args ...string) error {
	return command(ctx, nil, filepath.Dir(interpreter), e.tool.env(), outputHandler{onLine: logLine}, interpreter, append([]string{"-I", "-c", script}, args...)...)
}
