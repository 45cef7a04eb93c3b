package runtimes

import (
	"cmp"
	"context"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/agent/run/python"
	"github.com/muster-dev/muster/runtimes"
)

// DefaultBudget is the default disk space for runtimes and the cache.
const DefaultBudget muster.Size = 40 << 30

const (
	buildTimeout = 3 * time.Hour
	maxIdle      = 60 * 24 * time.Hour // a longer unused runtime is removed
)

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

// check validates the operator's options and makes the paths absolute.
func (c *Config) check() error {
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
	if err := cfg.check(); err != nil {
		return nil, err
	}
	if cfg.Budget == 0 {
		cfg.Budget = DefaultBudget
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	envs, err := python.NewEnvs(&run.Deps{Dir: cfg.Dir, Log: cfg.Log, Isolator: cfg.Limits, Path: cfg.Path, UV: cfg.UV}, python.Config{
		Folder: "runtimes", Timeout: buildTimeout, MaxIdle: maxIdle, Budget: cfg.Budget, Standalone: cfg.Standalone,
	})
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
	dir, err := r.envs.Get(ctx, r.request(d, observer), observer)
	if err != nil {
		return nil, err
	}
	return &run.Runtime{Name: name, Python: python.InterpreterPath(dir), VenvDir: dir, ModuleDirs: code}, nil
}

// request describes the environment of a runtime.
func (r *Runtimes) request(d *definition, observer run.Observer) python.Request {
	return python.Request{
		Name: d.name + "-" + d.key(os.Getenv("UV_TORCH_BACKEND"), cmp.Or(gpuVendor(), "none")), Title: "runtime " + d.name,
		Spec: func(ctx context.Context) *python.Spec {
			return d.pythonSpec(r.torchBackend(ctx, d, observer), r.cfg.Wheels)
		},
	}
}

// runtimeOf returns the name of the runtime to which an environment belongs.
func runtimeOf(env string) string {
	return env[:max(0, strings.LastIndex(env, "-"))]
}
