package runtimes

import (
	"context"
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
	Dir    string      // the worker's data dir
	Python string      // an interpreter for all runtimes: nothing is installed, what it lacks is said; "" makes environments
	Wheels string      // a folder with all packages: nothing is fetched; "" asks the package index
	Budget muster.Size // 0 means DefaultBudget
	UV     string      // as in run.Env
	Path   string      // as in run.Env
	Limits run.Limiter // as in run.Env; Check asks for none
	Files  fs.FS       // folder python, as in package runtimes; nil means those that come with Muster
	Log    *slog.Logger
	Apart  bool // this is no worker: what it runs is not ended when the worker of this data dir starts
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

	mu    sync.Mutex
	given map[string]*run.Runtime // checked in this life, by name; with Config.Python
	seen  map[string]time.Time    // when an environment was last checked, by its folder
	code  string                  // the folder of modules, once it is written
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
	envs, err := python.New(&run.Env{Dir: cfg.Dir, Log: cfg.Log, Limits: cfg.Limits, Path: cfg.Path, UV: cfg.UV})
	if err != nil {
		return nil, err
	}
	dir, err := filepath.Abs(cfg.Dir)
	if err != nil {
		return nil, muster.Errorf(muster.Internal, "the worker's data dir %s has no absolute path: %w", cfg.Dir, err)
	}
	r := &Runtimes{cfg: cfg, dir: filepath.Join(dir, "runtimes"), files: cfg.Files, envs: envs, given: map[string]*run.Runtime{}, seen: map[string]time.Time{}}
	if r.files == nil {
		r.files = runtimes.Files()
	}
	return r, nil
}

// Get returns a runtime, built if need be.
func (r *Runtimes) Get(ctx context.Context, name string, watch run.Watch) (*run.Runtime, error) {
	return nil, run.Failf(muster.Dependency, "runtime %s is not built yet", name)
}

// Code returns the folders with the modules of a runtime's kinds.
func (r *Runtimes) Code(name string) ([]string, error) {
	return nil, run.Failf(muster.Dependency, "runtime %s is not built yet", name)
}
