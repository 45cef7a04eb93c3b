package runtimes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/agent/run/python"
	"github.com/muster-dev/muster/runtimes"
)

// DefaultBudget is the default disk space for runtimes and the cache.
const DefaultBudget muster.Size = 40 << 30

// Config configures Runtimes.
type Config struct {
	Dir        string       // the worker's data dir
	Python     string       // an interpreter for all runtimes, used as it is; "" builds environments
	Wheels     string       // a folder with all packages: nothing is fetched; "" uses the package index
	Budget     muster.Size  // 0 means DefaultBudget
	UV         string       // as in run.Deps
	Path       string       // as in run.Deps
	Limits     run.Isolator // as in run.Deps
	Files      fs.FS        // with the folder python, as in package runtimes; nil means the embedded files
	Log        *slog.Logger
	Standalone bool // not a worker: a starting worker does not kill its tools, and it does not enforce the budget
}

// Check validates the operator's options and makes the paths absolute.
func (c *Config) Check() error {
	if c.Budget < 0 {
		return muster.Errorf(muster.Invalid, "--runtime-disk must not be negative")
	}
	if c.Python != "" && c.Wheels != "" {
		return muster.Errorf(muster.Invalid, "--python and --wheels exclude each other: with --python nothing is installed")
	}
	if c.Python != "" {
		path, err := exec.LookPath(c.Python)
		if err != nil {
			return muster.Errorf(muster.Invalid, "--python is not an interpreter: %w", err)
		}
		if c.Python, err = filepath.Abs(path); err != nil {
			return muster.Errorf(muster.Invalid, "--python has no absolute path: %w", err)
		}
	}
	if c.Wheels != "" {
		st, err := os.Stat(c.Wheels)
		if err == nil && !st.IsDir() {
			err = &fs.PathError{Op: "open", Path: c.Wheels, Err: fs.ErrInvalid}
		}
		if err != nil {
			return muster.Errorf(muster.Invalid, "--wheels is not a readable folder: %w", err)
		}
		if c.Wheels, err = filepath.Abs(c.Wheels); err != nil {
			return muster.Errorf(muster.Invalid, "--wheels has no absolute path: %w", err)
		}
	}
	return nil
}

// Runtimes builds and stores runtimes. It implements kinds.Runtimes. Its methods may be called concurrently.
type Runtimes struct {
	cfg   Config
	dir   string // the folder runtimes in the data dir
	files fs.FS
	envs  *python.Envs

	mu        sync.Mutex
	externals map[string]*run.Runtime // checked runtimes by name, with Config.Python
	moduleDir string                  // set when the modules are written
}

// New returns the runtimes of a data dir. It builds none.
func New(cfg Config) (*Runtimes, error) { //nolint:gocritic // it is kept
	if err := cfg.Check(); err != nil {
		return nil, err
	}
	if cfg.Budget == 0 {
		cfg.Budget = DefaultBudget
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	envs, err := python.New(&run.Deps{Dir: cfg.Dir, Log: cfg.Log, Isolator: cfg.Limits, Path: cfg.Path, UV: cfg.UV}, cfg.Standalone)
	if err != nil {
		return nil, err
	}
	dir, err := filepath.Abs(cfg.Dir)
	if err != nil {
		return nil, muster.Errorf(muster.Internal, "find the absolute path of data dir %s: %w", cfg.Dir, err)
	}
	r := &Runtimes{cfg: cfg, dir: filepath.Join(dir, "runtimes"), files: cfg.Files, envs: envs, externals: map[string]*run.Runtime{}}
	if r.files == nil {
		r.files = runtimes.Files()
	}
	return r, nil
}

// buildTimeout limits a build, including the wait for another process that builds the runtime.
const buildTimeout = 3 * time.Hour

// Get returns a runtime and builds it if necessary.
func (r *Runtimes) Get(ctx context.Context, name string, observer run.Observer) (*run.Runtime, error) {
	d, err := r.definition(name)
	if err != nil {
		return nil, run.Failf(muster.Dependency, "%w", err)
	}
	code, err := r.ModuleDirs(name)
	if err != nil {
		return nil, err
	}
	if r.cfg.Python != "" {
		return r.external(ctx, d, code)
	}
	ctx, cancel := context.WithTimeout(ctx, buildTimeout)
	defer cancel()
	dir, err := r.envDir(d)
	if err != nil {
		return nil, run.Failf(muster.WorkerInternal, "%w", err)
	}
	if err := r.ensure(ctx, d, dir, observer); err != nil {
		return nil, err
	}
	return &run.Runtime{Name: name, Python: filepath.Join(dir, "bin", "python"), VenvDir: dir, ModuleDirs: code}, nil
}

// ensure builds the environment at dir unless it is usable, and marks it as used.
func (r *Runtimes) ensure(ctx context.Context, d *definition, dir string, observer run.Observer) error {
	h, err := r.lock(ctx, d.name, false, observer)
	if err != nil {
		return err
	}
	err = r.usable(ctx, d, dir)
	h.release()
	if err == nil {
		return nil
	}
	if h, err = r.lock(ctx, d.name, true, observer); err != nil {
		return err
	}
	err = r.usable(ctx, d, dir)
	if err != nil {
		err = r.build(ctx, d, dir, err, h.publishSteps(observer))
	}
	h.release()
	if err == nil && !r.cfg.Standalone {
		r.prune(ctx)
	}
	return err
}

// usable returns why the environment at dir cannot be used, errAbsent if it does not exist. It marks a usable one as used. The caller
// holds the lock.
func (r *Runtimes) usable(ctx context.Context, d *definition, dir string) error {
	rec, _, err := readRecord(dir)
	if err != nil {
		return err
	}
	if err := r.envs.Verify(ctx, dir, &rec.Installed); err != nil {
		return err
	}
	now := time.Now()
	if err := os.Chtimes(filepath.Join(dir, markerFile), now, now); err != nil {
		r.cfg.Log.Warn("marking a runtime as used failed", slog.String("runtime", d.name), slog.Any("error", err))
	}
	return nil
}

// build builds the environment at dir. damage is the error of usable. The caller holds the exclusive lock.
func (r *Runtimes) build(ctx context.Context, d *definition, dir string, damage error, observer run.Observer) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if !errors.Is(damage, errAbsent) {
		r.cfg.Log.Log(ctx, r.failureLevel(), "rebuilding a damaged runtime", slog.String("runtime", d.name), slog.Any("found", damage))
		observer.LogLine("runtime " + d.name + " is damaged, rebuilding it (dependency recovery): " + damage.Error())
	}
	r.removeUnfinished(d.name)
	backend := r.torchBackend(ctx, d, observer)
	r.cfg.Log.Info("building a runtime", slog.String("runtime", d.name), slog.String("torch", backend))
	begun := time.Now()
	pySpec := d.pythonSpec(backend, r.cfg.Wheels)
	err := r.envs.Make(ctx, pySpec, dir, func(builtDir string, in python.Installed) (string, []byte, error) {
		return newMarker(builtDir, record{Name: d.name, Installed: in, Backend: backend})
	}, observer)
	if err != nil {
		r.cfg.Log.Log(ctx, r.failureLevel(), "building a runtime failed", slog.String("runtime", d.name), slog.Any("error", err))
		if t, ok := errors.AsType[*run.TaskError](err); ok && t.Reason == muster.DiskFull {
			r.cleanCache(ctx) // the downloads of a failed build only waste space
		}
		return err
	}
	took := time.Since(begun).Round(time.Second)
	if rec, _, err := readRecord(dir); err == nil {
		observer.LogLine(fmt.Sprintf("runtime %s: %s, %s, built in %.0f s", d.name, python.PackageCount(len(rec.Packages)), rec.Size, took.Seconds()))
	}
	r.cfg.Log.Info("runtime ready", slog.String("runtime", d.name), slog.Duration("after", took))
	return nil
}

// failureLevel is the log level of failures that the caller also reports: a command at a terminal shows them only once.
func (r *Runtimes) failureLevel() slog.Level {
	if r.cfg.Standalone {
		return slog.LevelInfo
	}
	return slog.LevelWarn
}

// cleanCache empties uv's cache and reports whether it did. It logs failures.
func (r *Runtimes) cleanCache(ctx context.Context) bool {
	err := r.envs.CleanCache(ctx)
	if err != nil {
		r.cfg.Log.Warn("removing cached packages failed", slog.Any("error", err))
	}
	return err == nil
}

// envPath returns the folder of an environment.
func (r *Runtimes) envPath(name string) string { return filepath.Join(r.dir, "envs", name) }
