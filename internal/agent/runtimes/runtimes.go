package runtimes

import (
	"cmp"
	"context"
	"errors"
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
	var err error
	if c.Dir, err = filepath.Abs(c.Dir); err != nil {
		return muster.Errorf(muster.Internal, "find the absolute path of data dir %s: %w", c.Dir, err)
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
	cfg.Budget = cmp.Or(cfg.Budget, DefaultBudget)
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Files == nil {
		cfg.Files = runtimes.Files()
	}
	envs := python.NewEnvs(&run.Deps{Dir: cfg.Dir, Log: cfg.Log, Isolator: cfg.Limits, Path: cfg.Path, UV: cfg.UV}, python.Config{
		Folder: "runtimes", Timeout: buildTimeout, MaxIdle: maxIdle, Budget: cfg.Budget, Standalone: cfg.Standalone,
	})
	return &Runtimes{cfg: cfg, files: cfg.Files, envs: envs, externals: map[string]*run.Runtime{}}, nil
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

// State is the state of a runtime on this machine.
type State string

// The states.
const (
	Absent     State = "not installed"
	Building   State = "building" // or being removed, by some process
	Ready      State = "ready"
	Broken     State = "broken"         // damaged: it is rebuilt when it is used next
	External   State = "given"          // the operator's interpreter, with all packages
	Incomplete State = "lacks packages" // the operator's interpreter, with missing packages
)

// Entry is one runtime on this machine.
type Entry struct {
	Name     string      `json:"name"`
	State    State       `json:"state"`
	Reason   string      `json:"why,omitempty"`    // why it is broken, or what is missing
	Step     string      `json:"step,omitempty"`   // of a build, and the requester
	Size     muster.Size `json:"size,omitempty"`   // of its environment, including shared files
	Used     muster.Time `json:"used,omitzero"`    // last use
	Built    muster.Time `json:"built,omitzero"`   // end of the build
	Packages int         `json:"packages"`         // in its lock file
	Python   string      `json:"python,omitempty"` // path of its interpreter
	Folder   string      `json:"folder,omitempty"` // of its environment
	Outdated int         `json:"old,omitempty"`    // number of environments of its other versions
}

// List returns the named runtimes, or all without names. It checks each file of each package.
func (r *Runtimes) List(ctx context.Context, names ...string) ([]Entry, error) {
	if len(names) == 0 {
		names = r.Names()
	}
	envs, err := r.list()
	if err != nil {
		return nil, err
	}
	list := make([]Entry, 0, len(names))
	for _, name := range names {
		d, err := r.definition(name)
		if err != nil {
			return nil, err
		}
		e := r.entry(ctx, d)
		for _, p := range envs {
			if runtimeOf(p.Name) == name && r.envs.Path(p.Name) != e.Folder {
				e.Outdated++
			}
		}
		list = append(list, e)
	}
	return list, nil
}

func (r *Runtimes) entry(ctx context.Context, d *definition) Entry {
	e := Entry{Name: d.name, State: Absent, Packages: len(d.lock)}
	if r.cfg.Python != "" {
		e.State, e.Python = External, r.cfg.Python
		if _, err := r.external(ctx, d, nil); err != nil {
			e.State, e.Reason = Broken, err.Error()
			if _, isMissing := errors.AsType[*missingError](err); isMissing {
				e.State = Incomplete
			}
		}
		return e
	}
	request := r.request(d, run.Observer{})
	env, err := r.envs.Load(request.Name)
	if !errors.Is(err, python.ErrAbsent) {
		e.Folder = r.envs.Path(request.Name)
	}
	if err == nil {
		e.Python = python.InterpreterPath(e.Folder)
		e.Size, e.Built, e.Used = env.Size, env.Built, muster.NewTime(env.Used)
	}
	if step, building := r.envs.Building(request.Name); building {
		e.State, e.Step = Building, step
		return e
	}
	if err == nil {
		e.State = Ready
		err = r.envs.Check(ctx, env)
	}
	if err != nil && !errors.Is(err, python.ErrAbsent) {
		e.State, e.Reason = Broken, err.Error()
	}
	return e
}

// Disk returns the disk usage of all runtimes and of each.
func (r *Runtimes) Disk() python.Usage { return r.envs.Usage(runtimeOf) }

// Remove removes all environments of a runtime and empties the cache. It returns how much that freed, also with an error, which is a Conflict if a process
// uses the runtime.
func (r *Runtimes) Remove(ctx context.Context, name string, observer run.Observer) (freed muster.Size, err error) {
	d, err := r.definition(name)
	if err != nil {
		return 0, err
	}
	all, err := r.list()
	if err != nil {
		return 0, err
	}
	before := r.Disk().Total
	request := r.request(d, observer)
	envs := []string{request.Name}
	for _, env := range all {
		if runtimeOf(env.Name) == name && env.Name != request.Name {
			envs = append(envs, env.Name)
		}
	}
	for _, request.Name = range envs {
		if err := r.envs.Remove(ctx, request, observer); err != nil {
			return before - r.Disk().Total, err
		}
	}
	if err := r.envs.CleanCache(ctx); err != nil {
		return 0, muster.Errorf(muster.Internal, "remove cached packages: %w", err)
	}
	return before - r.Disk().Total, nil
}

// list returns all environments, of any version of Muster.
func (r *Runtimes) list() ([]*python.Env, error) {
	all, err := r.envs.List()
	if err != nil {
		return nil, muster.Errorf(muster.Internal, "list the runtimes of %s: %w", r.cfg.Dir, err)
	}
	return all, nil
}
