package kinds

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/modelpool"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/agent/run/process"
	"github.com/muster-dev/muster/internal/agent/run/python"
	"github.com/muster-dev/muster/internal/kind"
)

// Config configures the executors.
type Config struct {
	Deps      *process.Deps
	Runtimes  Runtimes    // nil: this worker has none
	ModelPool ModelPool   // nil: no models are kept loaded between tasks
	ModelDisk muster.Size // maximum disk space of models that tasks download; 0 means no limit
	// MissingDisk returns how much must be freed on the disk of the data dir; nil: nothing ever.
	MissingDisk func() muster.Size
	OwnerKinds  []OwnerKind
	Options     []string // environment entries for all tasks, from the worker's owner
	// Program returns the path of a copy of this program that tasks may execute; portable: also in containers.
	Program func(portable bool) (string, error)
}

// Runtimes builds the runtimes of one worker. Its methods may be called concurrently.
type Runtimes interface {
	// Get returns a runtime, and builds it if needed. A failure is a TaskError, with reason Dependency if something is missing.
	Get(ctx context.Context, name string, observer run.Observer) (*run.Runtime, error)
	// ModuleDirs returns the folders with the modules of a runtime's kinds, for an image that has the packages itself.
	ModuleDirs(name string) ([]string, error)
}

// ModelPool keeps model servers. Its methods may be called concurrently.
type ModelPool interface {
	// Acquire returns the socket path of a model server, which it starts if needed. The server is not evicted before release is called.
	// No task depends on a server: after an error, such as not enough memory, the task loads the model itself.
	Acquire(ctx context.Context, want *modelpool.Request, observer run.Observer) (path string, release func(), err error)
}

// New returns an executor for each kind of Muster and of the owner.
func New(cfg Config) ([]run.Executor, error) {
	w := &shared{Config: cfg, envs: python.New(&cfg.Deps.Deps), models: newModelFolders(&cfg), operations: map[string]*definition{}}
	var all []*definition
	for _, k := range kind.Embedded() {
		all = append(all, &definition{Kind: k, shared: w})
	}
	for _, o := range cfg.OwnerKinds {
		d := &definition{Kind: o.Kind, dir: o.Dir, shared: w}
		all = append(all, d)
		if o.Operation {
			w.operations[o.Name] = d
		}
	}
	var list []run.Executor
	for _, d := range all {
		e, err := process.NewKind(cfg.Deps, d.Name, process.KindHooks{OwnEntrypoint: true, Program: d.prepare, Python: w.envs.GetFor})
		if err != nil {
			return nil, err
		}
		list = append(list, e)
	}
	return list, nil
}

// shared is what all kinds have in common.
type shared struct {
	Config

	envs       *python.Envs
	models     *modelFolders
	operations map[string]*definition // by name
}

// definition is a kind as this worker runs it.
type definition struct {
	*kind.Kind

	dir    string // its folder, "" for a kind of Muster
	shared *shared
}

// resolve returns the definition that runs a task, its input, and the input's path in the spec. For kind custom, the definition may be
// an operation of the owner.
func (d *definition) resolve(t *muster.TaskSpec) (*definition, json.RawMessage, string) {
	if d.Name != kind.Custom {
		return d, t.Input, "input"
	}
	var named struct {
		Name       string          `json:"name"`
		Parameters json.RawMessage `json:"parameters"`
	}
	if json.Unmarshal(t.Input, &named) == nil {
		if op := d.shared.operations[named.Name]; op != nil {
			return op, named.Parameters, "input.parameters"
		}
	}
	return d, t.Input, "input"
}

// prepare prepares a task and returns the command to execute.
func (d *definition) prepare(ctx context.Context, a *process.Attempt) ([]string, error) {
	spec := a.Task.Spec
	d, input, inputPath := d.resolve(spec)
	if problems := d.CheckInput(input, true); len(problems) > 0 {
		return nil, run.Failf(muster.BadInput, "%s", joinProblems(problems, inputPath))
	}
	if len(input) == 0 {
		input = json.RawMessage("{}")
	}
	seenPath, err := a.WriteFile("input.json", input)
	if err != nil {
		return nil, err
	}
	a.Setenv("MUSTER_INPUT", seenPath)
	a.Setenv("MUSTER_KIND", d.Name)
	if d.shared.Deps.AllowPrivateURLs || spec.Network == muster.NetworkAllowlist { // its proxy checks the addresses
		a.Setenv("MUSTER_ALLOW_PRIVATE", "1")
	}
	if d.shared.Deps.Server != "" {
		a.Setenv("MUSTER_SERVER_URL", d.shared.Deps.Server)
	}
	p := taskSetup{d: d, a: a, input: input}
	if err := p.apply(ctx); err != nil {
		return nil, err
	}
	argv, err := p.resolveEntry(d.Entry)
	if err != nil {
		return nil, err
	}
	if len(d.ModelHost) > 0 && d.shared.ModelPool != nil && !a.InContainer() && spec.Launcher == "" &&
		(spec.Network == "" || spec.Network == muster.NetworkHost) { // a model server has the worker's network
		a.SetModelServer(p.modelServerKey(), p.startModelServer)
	}
	return append(argv, commandArgv(spec.Run)...), nil
}

func joinProblems(problems []muster.FieldError, inputPath string) string {
	var parts []string
	for _, e := range problems {
		if rest, ok := strings.CutPrefix(e.Path, "input"); ok {
			e.Path = inputPath + rest
		}
		parts = append(parts, e.String())
	}
	return strings.Join(parts, "; ")
}

func commandArgv(c *muster.Command) []string {
	switch {
	case c == nil:
		return nil
	case c.Argv != nil:
		return c.Argv
	}
	return []string{"/bin/sh", "-c", c.Shell}
}

// joinPath returns the path of a file in a folder, both as the program sees them.
func joinPath(dir, name string) string {
	return path.Join(filepath.ToSlash(dir), strings.TrimPrefix(name, "./"))
}

const maxOwnerKinds = 200

// OwnerKind is a kind that the worker's owner defined.
type OwnerKind struct {
	*kind.Kind

	Dir string // its folder, absolute
}

// Load reads the definitions in the subfolders of dir, sorted by name. It skips invalid ones and returns an error for each. A missing
// dir is not an error.
func Load(dir string) (ownerKinds []OwnerKind, errs []error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, []error{muster.Errorf(muster.Invalid, "find the folder of kinds: %w", err)}
	}
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, []error{muster.Errorf(muster.Invalid, "read the folder of kinds: %w", err)}
	}
	dirs := map[string]string{}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if info, err := os.Stat(path); err != nil || !info.IsDir() || e.Name()[0] == '.' {
			continue // such as a README
		}
		k, err := parseDir(path)
		switch {
		case err != nil:
			errs = append(errs, err)
		case kind.IsReserved(k.Name):
			errs = append(errs, muster.Errorf(muster.Invalid, "%s: %s is a kind or operation of Muster: choose another name", path, k.Name))
		case dirs[k.Name] != "":
			errs = append(errs, muster.Errorf(muster.Invalid, "%s: %s also defines kind %s: choose another name", path, dirs[k.Name], k.Name))
		case len(ownerKinds) == maxOwnerKinds:
			return ownerKinds, append(errs, muster.Errorf(muster.Invalid, "%s: a worker can have at most %d kinds of its owner", path, maxOwnerKinds))
		default:
			dirs[k.Name] = path
			ownerKinds = append(ownerKinds, OwnerKind{k, path})
		}
	}
	return trimToSizeLimit(ownerKinds, errs)
}

// parseDir reads one definition, without following links out of dir.
func parseDir(dir string) (*kind.Kind, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, muster.Errorf(muster.Invalid, "read %s: %w", dir, err)
	}
	defer func() { _ = root.Close() }()
	return kind.Parse(root.FS(), dir)
}

// trimToSizeLimit drops the last kinds until the list fits into a message to the server.
func trimToSizeLimit(ownerKinds []OwnerKind, errs []error) ([]OwnerKind, []error) {
	for len(ownerKinds) > 0 {
		_, err := kind.EncodeList(Definitions(ownerKinds))
		if err == nil {
			break
		}
		last := ownerKinds[len(ownerKinds)-1]
		errs = append(errs, muster.Errorf(muster.TooLarge, "%s: skip kind %s: %w", last.Dir, last.Name, err))
		ownerKinds = ownerKinds[:len(ownerKinds)-1]
	}
	return ownerKinds, errs
}

// Definitions returns the definitions without their folders.
func Definitions(ownerKinds []OwnerKind) []*kind.Kind {
	list := make([]*kind.Kind, 0, len(ownerKinds))
	for _, o := range ownerKinds {
		list = append(list, o.Kind)
	}
	return slices.Clip(list)
}
