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

// DefaultBudget is how much of the disk runtimes may take, with the packages that are kept for the next one.
const DefaultBudget muster.Size = 40 << 30

// Config says how runtimes are made.
type Config struct {
	Dir        string       // the worker's data dir
	Python     string       // an interpreter for all runtimes: nothing is installed, what it lacks is said; "" makes environments
	Wheels     string       // a folder with all packages: nothing is fetched; "" asks the package index
	Budget     muster.Size  // 0 means DefaultBudget
	UV         string       // as in run.Env
	Path       string       // as in run.Env
	Limits     run.Isolator // as in run.Env
	Files      fs.FS        // folder python, as in package runtimes; nil means those that come with Muster
	Log        *slog.Logger
	Standalone bool // this is no worker: what it runs is not ended when the worker of this data dir starts, and it makes no room
}

// Check says what is wrong with what the operator says, and makes the paths absolute.
func (c *Config) Check() error {
	if c.Budget < 0 {
		return muster.Errorf(muster.Invalid, "--runtime-disk must not be negative")
	}
	if c.Python != "" && c.Wheels != "" {
		return muster.Errorf(muster.Invalid, "--python and --wheels exclude each other: nothing is installed for an interpreter that is given")
	}
	if c.Python != "" {
		path, err := exec.LookPath(c.Python)
		if err != nil {
			return muster.Errorf(muster.Invalid, "--python names no interpreter: %w", err)
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
			return muster.Errorf(muster.Invalid, "--wheels is no folder that can be read: %w", err)
		}
		if c.Wheels, err = filepath.Abs(c.Wheels); err != nil {
			return muster.Errorf(muster.Invalid, "--wheels has no absolute path: %w", err)
		}
	}
	return nil
}

// Runtimes makes and keeps runtimes. It is a run.Runtimes.
type Runtimes struct {
	cfg   Config
	dir   string // all of it, in the data dir
	files fs.FS
	envs  *python.Envs

	mu           sync.Mutex
	externals    map[string]*run.Runtime // checked in this life, by name; with Config.Python
	checkedUntil map[string]time.Time    // until when what was found of an environment holds, by its folder
	moduleDir    string                  // the folder of modules, once it is written
}

// New returns the runtimes of a data dir. Nothing is made before it is asked for.
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
	open := python.New
	if cfg.Standalone {
		open = python.NewStandalone
	}
	envs, err := open(&run.Deps{Dir: cfg.Dir, Log: cfg.Log, Isolator: cfg.Limits, Path: cfg.Path, UV: cfg.UV})
	if err != nil {
		return nil, err
	}
	dir, err := filepath.Abs(cfg.Dir)
	if err != nil {
		return nil, muster.Errorf(muster.Internal, "the worker's data dir %s has no absolute path: %w", cfg.Dir, err)
	}
	r := &Runtimes{cfg: cfg, dir: filepath.Join(dir, "runtimes"), files: cfg.Files, envs: envs, externals: map[string]*run.Runtime{}, checkedUntil: map[string]time.Time{}}
	if r.files == nil {
		r.files = runtimes.Files()
	}
	return r, nil
}

// buildTimeout bounds the making of a runtime, with waiting for another that makes it.
const buildTimeout = 3 * time.Hour

// recheckFactor is how many times as long as looking at an environment what was found holds: with one short task after the other,
// a twentieth of a core is spent on that.
const recheckFactor = 20

// Get returns a runtime, built if need be.
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

// ensure leaves a whole environment at dir that counts as just used.
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
	if err == nil && !r.cfg.Standalone { // who else would remove what a worker keeps?
		r.prune(ctx)
	}
	return err
}

// usable returns why there is no whole environment at dir, errAbsent for none at all. One that is whole counts
// as just used from now on. Its lock is held.
func (r *Runtimes) usable(ctx context.Context, d *definition, dir string) error {
	rec, _, err := readRecord(dir)
	if err != nil {
		return err
	}
	r.mu.Lock()
	until, known := r.checkedUntil[dir]
	r.mu.Unlock()
	if !known {
		if err := r.checkInterpreter(ctx, dir); err != nil {
			return err
		}
	}
	if begun := time.Now(); begun.After(until) {
		if err := rec.Check(ctx, dir); err != nil {
			return err
		}
		r.mu.Lock()
		r.checkedUntil[dir] = time.Now().Add(recheckFactor * time.Since(begun))
		r.mu.Unlock()
	}
	now := time.Now()
	if err := os.Chtimes(filepath.Join(dir, markerFile), now, now); err != nil {
		r.cfg.Log.Warn("that a runtime is used cannot be noted", slog.String("runtime", d.name), slog.Any("error", err))
	}
	return nil
}

// checkInterpreter returns why the interpreter of an environment does not.
func (r *Runtimes) checkInterpreter(ctx context.Context, dir string) error {
	if err := r.envs.CheckInterpreter(ctx, dir); err != nil {
		return fmt.Errorf("its interpreter does not work: %w", err)
	}
	return nil
}

// build makes an environment at dir. Its lock is held alone.
func (r *Runtimes) build(ctx context.Context, d *definition, dir string, damage error, observer run.Observer) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if !errors.Is(damage, errAbsent) {
		r.cfg.Log.Log(ctx, r.failureLevel(), "a damaged runtime is made anew", slog.String("runtime", d.name), slog.Any("found", damage))
		observer.LogLine("runtime " + d.name + " is damaged and made anew (dependency recovery): " + damage.Error())
	}
	r.removeUnfinished(d.name)
	backend := r.torchBackend(ctx, d, observer)
	r.cfg.Log.Info("a runtime is made", slog.String("runtime", d.name), slog.String("torch", backend))
	begun := time.Now()
	pySpec := d.pythonSpec(backend, r.cfg.Wheels)
	err := r.envs.Make(ctx, pySpec, dir, func(builtDir string, in python.Installed) (string, []byte, error) {
		return newMarker(builtDir, record{Name: d.name, Installed: in, Backend: backend})
	}, observer)
	if err != nil {
		r.cfg.Log.Log(ctx, r.failureLevel(), "a runtime cannot be made", slog.String("runtime", d.name), slog.Any("error", err))
		if t, ok := errors.AsType[*run.TaskError](err); ok && t.Reason == muster.DiskFull {
			r.freeDisk(ctx)
		}
		return err
	}
	r.mu.Lock()
	r.checkedUntil[dir] = time.Now()
	r.mu.Unlock()
	took := time.Since(begun).Round(time.Second)
	if rec, _, err := readRecord(dir); err == nil {
		observer.LogLine(fmt.Sprintf("runtime %s: %s, %s, built in %.0f s", d.name, python.PackageCount(len(rec.Packages)), rec.Size, took.Seconds()))
	}
	r.cfg.Log.Info("a runtime is ready", slog.String("runtime", d.name), slog.Duration("after", took))
	return nil
}

// failureLevel is the level of what whoever asked for a runtime is told, too: to one at a terminal once is enough.
func (r *Runtimes) failureLevel() slog.Level {
	if r.cfg.Standalone {
		return slog.LevelInfo
	}
	return slog.LevelWarn
}

// freeDisk leaves a disk that is full no fuller than it must be: what was fetched in vain is not kept.
func (r *Runtimes) freeDisk(ctx context.Context) {
	if err := r.envs.CleanCache(ctx); err != nil {
		r.cfg.Log.Warn("kept packages cannot be removed", slog.Any("error", err))
	}
}

// envPath is the folder of an environment, by its name.
func (r *Runtimes) envPath(name string) string { return filepath.Join(r.dir, "envs", name) }
