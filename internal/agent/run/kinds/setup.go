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
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/agent/run/process"
	"github.com/muster-dev/muster/internal/kind"
)

// taskSetup is what a task finds where it runs: on the worker, or in a container.
type taskSetup struct {
	d     *definition
	a     *process.Attempt
	input json.RawMessage

	python      string   // the interpreter of the kind, "" for none
	venv        string   // its environment on the worker, "" for none
	modulePaths []string // as the program sees them
	readDirs    []string // on the worker
	kindDir     string   // of the kind, as the program sees it
	modelsDir   string   // as the program sees it
}

// apply gives the task all that its kind says.
func (p *taskSetup) apply(ctx context.Context) error {
	for _, entry := range p.d.shared.Options {
		name, value, _ := strings.Cut(entry, "=")
		p.a.Setenv(name, value)
	}
	for name, value := range p.d.Env {
		p.a.SetDefaultEnv(name, value)
	}
	if n := p.a.Task.Spec.Resources.CPUs; n > 0 { // more threads than that only stand in each other's way
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

// exposeFolders lends the kind's folder and that of models.
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
	dir, err := p.d.shared.modelsDir()
	if err != nil {
		return err
	}
	if p.modelsDir, err = p.a.Expose(dir, "models", true); err != nil {
		return err
	}
	p.a.Setenv("MUSTER_MODELS", p.modelsDir)
	p.a.SetDefaultEnv("HF_HOME", joinPath(p.modelsDir, "hf"))
	return nil
}

// setInterpreter finds the Python of the kind.
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

// exposeModules lends a container the modules of a runtime: the packages are the image's.
func (p *taskSetup) exposeModules(name string) error {
	if name == "" {
		return nil
	}
	if p.d.shared.Deps.Runtimes == nil {
		return errNoRuntimes
	}
	dirs, err := p.d.shared.Deps.Runtimes.ModuleDirs(name)
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

var errNoRuntimes = run.Failf(muster.Dependency, "this worker makes no Python runtimes")

// useRuntime takes one that comes with Muster.
func (p *taskSetup) useRuntime(ctx context.Context, name string) error {
	if p.d.shared.Deps.Runtimes == nil {
		return errNoRuntimes
	}
	rt, err := p.d.shared.Deps.Runtimes.Get(ctx, name, run.Observer{Step: p.a.SetStep, LogLine: p.a.LogLine, Requester: "task " + p.a.Task.Attempt.Task.String()})
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

// buildVenv makes the environment that the kind itself asks for.
func (p *taskSetup) buildVenv(ctx context.Context) error {
	root, err := os.OpenRoot(p.d.dir)
	if err != nil {
		return run.Failf(muster.WorkerInternal, "the folder of kind %s cannot be read: %w", p.d.Name, err)
	}
	defer func() { _ = root.Close() }() // holds nothing that could be lost
	p.venv, err = p.d.shared.buildVenv(ctx, p.d.Python, root, run.Observer{Step: p.a.SetStep, LogLine: p.a.LogLine})
	if err != nil {
		return err
	}
	p.a.UseVenv(p.venv)
	p.python = filepath.Join(p.venv, "bin", "python")
	return nil
}

// resolveEntry is an entry with its first word put in place.
func (p *taskSetup) resolveEntry(entry []string) ([]string, error) {
	argv := slices.Clone(entry)
	switch first := argv[0]; {
	case first == kind.EntryPython && p.python != "":
		argv[0] = p.python
		if p.a.InContainer() && p.a.Task.Spec.Launcher == "" { // which starts Python itself
			return p.withImageCheck(argv)
		}
	case first == kind.EntryMuster:
		var err error
		if argv[0], err = p.exposeProgram(); err != nil {
			return nil, run.Failf(muster.Dependency, "the worker's own program cannot be executed by tasks: %w", err)
		}
	case strings.HasPrefix(first, "./"):
		argv[0] = joinPath(p.kindDir, first)
	}
	return argv, nil
}

// exposeProgram lends the task the worker's own program.
func (p *taskSetup) exposeProgram() (string, error) {
	path, err := p.d.shared.Program(p.a.InContainer())
	if err != nil {
		return "", err
	}
	return p.a.Expose(path, "program", false)
}

// withImageCheck is a command of the image's Python, by a program that first looks whether it has what the kind needs, and says so if not. Where
// the worker has none that runs in every image, it is the command itself.
func (p *taskSetup) withImageCheck(argv []string) ([]string, error) {
	program, err := p.exposeProgram()
	if err != nil {
		p.a.LogLine("what the image has is not looked at before: " + err.Error())
		return argv, nil //nolint:nilerr // Python says what is missing, less well
	}
	return slices.Concat([]string{program, "do", "image", p.a.Task.Spec.Image, p.d.RuntimeFor(p.input)}, argv), nil
}

// modelServerKey names the host that serves the task: its model, on its devices, by its runtime.
func (p *taskSetup) modelServerKey() string {
	devices := slices.Sorted(slices.Values(p.a.Task.Grant.GPUs))
	return strings.Join(slices.Concat([]string{p.d.ModelKey(p.input), p.python}, p.modulePaths, devices), "\n")
}

// modelServer is one that keeps the model of the task loaded.
func (p *taskSetup) modelServer() (*run.ModelServer, error) {
	argv, err := p.resolveEntry(p.d.ModelHost)
	if err != nil {
		return nil, err
	}
	grant := &p.a.Task.Grant
	h := &run.ModelServer{
		Key: p.modelServerKey(), Argv: argv, ReadDirs: p.readDirs, Attempt: p.a.Task.Attempt,
		GPUs: grant.GPUs, CPUs: grant.CPUs, Memory: grant.Memory,
		Env: slices.Concat(p.d.shared.Options, []string{
			"PYTHONPATH=" + strings.Join(append(slices.Clone(p.modulePaths), filepath.Join(p.d.shared.dir, "sdk")), ":"),
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
		h.WriteDirs = append(h.WriteDirs, p.modelsDir)
		h.Env = append(h.Env, "MUSTER_MODELS="+p.modelsDir, "HF_HOME="+joinPath(p.modelsDir, "hf"))
	}
	if devices := p.d.shared.Deps.GPUs; devices != nil {
		h.Env = append(h.Env, devices.Environ(grant)...)
	}
	return h, nil
}

// startModelServer has the host of the task ready. The task does without where that cannot be had.
func (p *taskSetup) startModelServer(ctx context.Context) error {
	h, err := p.modelServer()
	if err != nil {
		return err
	}
	socket, release, err := p.d.shared.Deps.ModelPool.Acquire(ctx, h, run.Observer{Step: p.a.SetStep, LogLine: p.a.LogLine})
	if err != nil {
		p.a.LogLine("the model is loaded for this task alone: " + err.Error())
		return nil //nolint:nilerr // it is slower, and no more than that
	}
	p.a.Cleanup(release)
	p.a.Setenv("MUSTER_WARM", socket)
	return nil
}
