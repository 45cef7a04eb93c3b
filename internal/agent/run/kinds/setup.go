package kinds

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/modelpool"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/agent/run/process"
	"github.com/muster-dev/muster/internal/agent/run/python"
	"github.com/muster-dev/muster/internal/kind"
)

// taskSetup prepares one task, as a process or in a container.
type taskSetup struct {
	d     *definition
	a     *process.Attempt
	input json.RawMessage

	python      string   // the interpreter of the kind, "" for none
	venv        string   // the kind's environment on the worker, "" for none
	modulePaths []string // as the program sees them
	readDirs    []string // on the worker
	kindDir     string   // as the program sees it
	modelsDir   string   // the project's, as the program sees it
	ownerModels string   // the owner's, as the program sees it
}

// apply sets up the task's environment, folders and interpreter.
func (p *taskSetup) apply(ctx context.Context) error {
	for _, entry := range p.d.shared.Options {
		name, value, _ := strings.Cut(entry, "=")
		p.a.Setenv(name, value)
	}
	for name, value := range p.d.Env {
		p.a.SetDefaultEnv(name, value)
	}
	if n := p.a.Task.Spec.Resources.CPUs; n > 0 { // more threads are slower
		p.a.SetDefaultEnv("OMP_NUM_THREADS", strconv.Itoa(int(math.Ceil(n))))
	}
	if err := p.exposeFolders(); err != nil {
		return err
	}
	if err := p.setInterpreter(ctx); err != nil {
		return err
	}
	for _, dir := range p.modulePaths {
		p.a.AddPythonPath(dir)
	}
	return nil
}

// exposeFolders makes the kind's folder and those of models visible to the task.
func (p *taskSetup) exposeFolders() (err error) {
	if p.d.dir != "" {
		if p.kindDir, err = p.a.Expose(p.d.dir, "kind", false); err != nil {
			return err
		}
		p.a.Setenv("MUSTER_KIND_DIR", p.kindDir)
	}
	if !p.d.Models {
		return nil
	}
	owner, err := p.d.shared.models.ownerFolder()
	if err != nil {
		return err
	}
	if p.ownerModels, err = p.a.Expose(owner, "owner-models", false); err != nil {
		return err
	}
	dir, release, err := p.d.shared.models.use(p.a.Task.Project)
	if err != nil {
		return err
	}
	p.a.Cleanup(release)
	if p.modelsDir, err = p.a.Expose(dir, "models", true); err != nil {
		return err
	}
	p.a.Setenv("MUSTER_OWNER_MODELS", p.ownerModels)
	p.a.Setenv("MUSTER_MODELS", p.modelsDir)
	if limit := p.d.shared.ModelDisk; limit > 0 {
		p.a.Setenv("MUSTER_MODEL_DISK", strconv.FormatInt(int64(limit), 10))
	}
	p.a.SetDefaultEnv("HF_HOME", joinPath(p.modelsDir, "hf"))
	return nil
}

func (p *taskSetup) setInterpreter(ctx context.Context) error {
	name := p.d.RuntimeFor(p.input)
	if name != "" {
		p.a.SetFirstStep("loading libraries")
	}
	switch {
	case p.a.InContainer():
		p.python = "python3"
		return p.exposeModules(name)
	case name != "":
		return p.useRuntime(ctx, name)
	case p.d.Python != nil:
		return p.buildVenv(ctx)
	}
	return nil
}

// exposeModules makes the modules of a runtime visible in a container. The image has the packages.
func (p *taskSetup) exposeModules(name string) error {
	if name == "" {
		return nil
	}
	if p.d.shared.Runtimes == nil {
		return errNoRuntimes
	}
	dirs, err := p.d.shared.Runtimes.ModuleDirs(name)
	if err != nil {
		return err
	}
	for i, dir := range dirs {
		seenPath, err := p.a.Expose(dir, fmt.Sprintf("code-%d", i), false)
		if err != nil {
			return err
		}
		p.modulePaths = append(p.modulePaths, seenPath)
	}
	return nil
}

var errNoRuntimes = run.Failf(muster.Dependency, "this worker has no Python runtimes")

func (p *taskSetup) useRuntime(ctx context.Context, name string) error {
	if p.d.shared.Runtimes == nil {
		return errNoRuntimes
	}
	rt, err := p.d.shared.Runtimes.Get(ctx, name, p.a.Observer())
	if err != nil {
		return err
	}
	p.python, p.venv, p.modulePaths = rt.Python, rt.VenvDir, rt.ModuleDirs
	p.readDirs = slices.Concat(rt.ModuleDirs, rt.ReadDirs)
	if rt.VenvDir != "" {
		p.a.UseVenv(rt.VenvDir)
	}
	for _, dir := range p.readDirs {
		if _, err := p.a.Expose(dir, "", false); err != nil {
			return err
		}
	}
	return nil
}

func (p *taskSetup) buildVenv(ctx context.Context) error {
	root, err := os.OpenRoot(p.d.dir)
	if err != nil {
		return run.Failf(muster.WorkerInternal, "read the folder of kind %s: %w", p.d.Name, err)
	}
	defer func() { _ = root.Close() }()
	p.venv, err = p.d.shared.envs.GetFor(ctx, &run.PythonRequest{Project: python.OwnerProject, Python: p.d.Python, Root: root}, p.a.Observer())
	if err != nil {
		return err
	}
	p.a.UseVenv(p.venv)
	p.python = filepath.Join(p.venv, "bin", "python")
	return nil
}

// resolveEntry returns an entry with its first word replaced by a path.
func (p *taskSetup) resolveEntry(entry []string) ([]string, error) {
	argv := slices.Clone(entry)
	switch first := argv[0]; {
	case first == kind.EntryPython && p.python != "":
		argv[0] = p.python
		if p.a.InContainer() && p.a.Task.Spec.Launcher == "" { // a launcher starts Python itself
			return p.withImageCheck(argv)
		}
	case first == kind.EntryMuster:
		var err error
		if argv[0], err = p.exposeProgram(); err != nil {
			return nil, run.Failf(muster.Dependency, "make the worker's program executable for tasks: %w", err)
		}
	case strings.HasPrefix(first, "./"):
		argv[0] = joinPath(p.kindDir, first)
	}
	return argv, nil
}

func (p *taskSetup) exposeProgram() (string, error) {
	path, err := p.d.shared.Program(p.a.InContainer())
	if err != nil {
		return "", err
	}
	return p.a.Expose(path, "program", false)
}

// withImageCheck prepends a program that checks whether the image's Python has the packages of the kind. It returns argv unchanged if
// the worker has no program that runs in every image.
func (p *taskSetup) withImageCheck(argv []string) ([]string, error) {
	program, err := p.exposeProgram()
	if err != nil {
		p.a.LogLine("skipped the check of the image: " + err.Error())
		return argv, nil //nolint:nilerr // Python reports what is missing, less clearly
	}
	return slices.Concat([]string{program, "builtin", "image", p.a.Task.Spec.Image, p.d.RuntimeFor(p.input)}, argv), nil
}

// modelServerKey returns the key of the model server that serves the task: its project, model, runtime and devices.
func (p *taskSetup) modelServerKey() string {
	devices := slices.Sorted(slices.Values(p.a.Task.Grant.GPUs))
	return strings.Join(slices.Concat([]string{p.a.Task.Project, p.d.ModelKey(p.input), p.python}, p.modulePaths, devices), "\n")
}

// modelServer returns the definition of the task's model server.
func (p *taskSetup) modelServer() (*modelpool.Request, error) {
	argv, err := p.resolveEntry(p.d.ModelHost)
	if err != nil {
		return nil, err
	}
	grant := &p.a.Task.Grant
	h := &modelpool.Request{
		Key: p.modelServerKey(), Argv: argv, ReadDirs: p.readDirs, Attempt: p.a.Task.Attempt,
		GPUs: grant.GPUs, CPUs: grant.CPUs, Memory: grant.Memory,
		Env: slices.Concat(p.d.shared.Options, []string{
			"PYTHONPATH=" + strings.Join(append(slices.Clone(p.modulePaths), filepath.Join(p.d.shared.Deps.Dir, "sdk")), ":"),
			"PYTHONUNBUFFERED=1", "MUSTER_KIND=" + p.d.Name,
		}),
	}
	for name, value := range p.d.Env {
		h.Env = append(h.Env, name+"="+value)
	}
	if p.venv != "" {
		h.ReadDirs = append(slices.Clip(h.ReadDirs), p.venv)
		h.Env = append(h.Env, "VIRTUAL_ENV="+p.venv)
	}
	if p.kindDir != "" {
		h.ReadDirs = append(slices.Clip(h.ReadDirs), p.kindDir)
		h.Env = append(h.Env, "MUSTER_KIND_DIR="+p.kindDir)
	}
	if p.modelsDir != "" {
		h.ReadDirs = append(slices.Clip(h.ReadDirs), p.ownerModels)
		h.WriteDirs = append(h.WriteDirs, p.modelsDir)
		h.Env = append(h.Env, "MUSTER_OWNER_MODELS="+p.ownerModels, "MUSTER_MODELS="+p.modelsDir, "HF_HOME="+joinPath(p.modelsDir, "hf"))
		if limit := p.d.shared.ModelDisk; limit > 0 {
			h.Env = append(h.Env, "MUSTER_MODEL_DISK="+strconv.FormatInt(int64(limit), 10))
		}
	}
	if devices := p.d.shared.Deps.GPUs; devices != nil {
		h.Env = append(h.Env, devices.Environ(grant)...)
	}
	return h, nil
}

// startModelServer acquires the task's model server. After a failure the task loads the model itself.
func (p *taskSetup) startModelServer(ctx context.Context) error {
	h, err := p.modelServer()
	if err != nil {
		return err
	}
	socket, release, err := p.d.shared.ModelPool.Acquire(ctx, h, p.a.Observer())
	if err != nil {
		p.a.LogLine("loading the model only for this task: " + err.Error())
		return nil //nolint:nilerr // the task is only slower
	}
	p.a.Cleanup(release)
	p.a.Setenv("MUSTER_WARM", socket)
	return nil
}
