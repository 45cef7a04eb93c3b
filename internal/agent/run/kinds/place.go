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

// place is what a task finds where it runs: on the worker, or in a container.
type place struct {
	d     *definition
	a     *process.Attempt
	input json.RawMessage

	python  string   // the interpreter of the kind, "" for none
	env     string   // its environment on the worker, "" for none
	modules []string // as the program sees them
	read    []string // on the worker
	folder  string   // of the kind, as the program sees it
	models  string   // as the program sees it
}

// settle gives the task all that its kind says.
func (p *place) settle(ctx context.Context) error {
	for _, entry := range p.d.on.Options {
		name, value, _ := strings.Cut(entry, "=")
		p.a.Setenv(name, value)
	}
	for name, value := range p.d.Env {
		p.a.Default(name, value)
	}
	if n := p.a.Task.Spec.Resources.CPUs; n > 0 { // more threads than that only stand in each other's way
		p.a.Default("OMP_NUM_THREADS", strconv.Itoa(int(math.Ceil(n))))
	}
	if err := p.lend(); err != nil {
		return err
	}
	if err := p.interpreter(ctx); err != nil {
		return err
	}
	for _, dir := range p.modules {
		p.a.Import(dir)
	}
	return nil
}

// lend lends the kind's folder and that of models.
func (p *place) lend() (err error) {
	if p.d.dir != "" {
		if p.folder, err = p.a.Lend(p.d.dir, "kind", false); err != nil {
			return err
		}
		p.a.Setenv("MUSTER_KIND_DIR", p.folder)
	}
	if !p.d.Models {
		return nil
	}
	dir, err := p.d.on.models()
	if err != nil {
		return err
	}
	if p.models, err = p.a.Lend(dir, "models", true); err != nil {
		return err
	}
	p.a.Setenv("MUSTER_MODELS", p.models)
	p.a.Default("HF_HOME", file(p.models, "hf"))
	return nil
}

// interpreter finds the Python of the kind.
func (p *place) interpreter(ctx context.Context) error {
	name := p.d.RuntimeFor(p.input)
	if name != "" {
		p.a.First("loading libraries")
	}
	switch {
	case p.a.InContainer():
		p.python = "python3"
		return p.code(name)
	case name != "":
		return p.runtime(ctx, name)
	case p.d.Python != nil:
		return p.own(ctx)
	}
	return nil
}

// code lends a container the modules of a runtime: the packages are the image's.
func (p *place) code(name string) error {
	if name == "" {
		return nil
	}
	if p.d.on.Env.Runtimes == nil {
		return errNoRuntimes
	}
	dirs, err := p.d.on.Env.Runtimes.Code(name)
	if err != nil {
		return err
	}
	for i, dir := range dirs {
		at, err := p.a.Lend(dir, fmt.Sprintf("code-%d", i), false)
		if err != nil {
			return err
		}
		p.modules = append(p.modules, at)
	}
	return nil
}

var errNoRuntimes = run.Failf(muster.Dependency, "this worker makes no Python runtimes")

// runtime takes one that comes with Muster.
func (p *place) runtime(ctx context.Context, name string) error {
	if p.d.on.Env.Runtimes == nil {
		return errNoRuntimes
	}
	rt, err := p.d.on.Env.Runtimes.Get(ctx, name, run.Watch{Step: p.a.Step, Say: p.a.Say, For: "task " + p.a.Task.Attempt.Task.String()})
	if err != nil {
		return err
	}
	p.python, p.env, p.modules = rt.Python, rt.Env, rt.Code
	p.read = slices.Concat(rt.Code, rt.Read)
	if rt.Env != "" {
		p.a.UsePython(rt.Env)
	}
	for _, dir := range p.read {
		if _, err := p.a.Lend(dir, "", false); err != nil {
			return err
		}
	}
	return nil
}

// own makes the environment that the kind itself asks for.
func (p *place) own(ctx context.Context) error {
	root, err := os.OpenRoot(p.d.dir)
	if err != nil {
		return run.Failf(muster.WorkerInternal, "the folder of kind %s cannot be read: %w", p.d.Name, err)
	}
	defer func() { _ = root.Close() }() // holds nothing that could be lost
	p.env, err = p.d.on.environment(ctx, p.d.Python, root, run.Watch{Step: p.a.Step, Say: p.a.Say})
	if err != nil {
		return err
	}
	p.a.UsePython(p.env)
	p.python = filepath.Join(p.env, "bin", "python")
	return nil
}

// command is an entry with its first word put in place.
func (p *place) command(entry []string) ([]string, error) {
	argv := slices.Clone(entry)
	switch first := argv[0]; {
	case first == kind.EntryPython && p.python != "":
		argv[0] = p.python
		if p.a.InContainer() && p.a.Task.Spec.Launcher == "" { // which starts Python itself
			return p.judged(argv)
		}
	case first == kind.EntryMuster:
		var err error
		if argv[0], err = p.program(); err != nil {
			return nil, run.Failf(muster.Dependency, "the worker's own program cannot be executed by tasks: %w", err)
		}
	case strings.HasPrefix(first, "./"):
		argv[0] = file(p.folder, first)
	}
	return argv, nil
}

// program lends the task the worker's own program.
func (p *place) program() (string, error) {
	path, err := p.d.on.Program(p.a.InContainer())
	if err != nil {
		return "", err
	}
	return p.a.Lend(path, "program", false)
}

// judged is a command of the image's Python, by a program that first looks whether it has what the kind needs, and says so if not. Where
// the worker has none that runs in every image, it is the command itself.
func (p *place) judged(argv []string) ([]string, error) {
	program, err := p.program()
	if err != nil {
		p.a.Say("what the image has is not looked at before: " + err.Error())
		return argv, nil //nolint:nilerr // Python says what is missing, less well
	}
	return slices.Concat([]string{program, "do", "image", p.a.Task.Spec.Image, p.d.RuntimeFor(p.input)}, argv), nil
}

// key names the host that serves the task: its model, on its devices, by its runtime.
func (p *place) key() string {
	devices := slices.Sorted(slices.Values(p.a.Task.Grant.GPUs))
	return strings.Join(slices.Concat([]string{p.d.ModelKey(p.input), p.python}, p.modules, devices), "\n")
}

// host is one that keeps the model of the task loaded.
func (p *place) host() (*run.Host, error) {
	argv, err := p.command(p.d.ModelHost)
	if err != nil {
		return nil, err
	}
	grant := &p.a.Task.Grant
	h := &run.Host{
		Key: p.key(), Argv: argv, Read: p.read, Attempt: p.a.Task.Attempt,
		GPUs: grant.GPUs, CPUs: grant.CPUs, Memory: grant.Memory,
		Env: slices.Concat(p.d.on.Options, []string{
			"PYTHONPATH=" + strings.Join(append(slices.Clone(p.modules), filepath.Join(p.d.on.dir, "sdk")), ":"),
			"PYTHONUNBUFFERED=1", "MUSTER_KIND=" + p.d.Name,
		}),
	}
	for name, value := range p.d.Env {
		h.Env = append(h.Env, name+"="+value)
	}
	if p.env != "" {
		h.Read = append(slices.Clip(h.Read), p.env)
		h.Env = append(h.Env, "VIRTUAL_ENV="+p.env)
	}
	if p.folder != "" {
		h.Read = append(slices.Clip(h.Read), p.folder)
		h.Env = append(h.Env, "MUSTER_KIND_DIR="+p.folder)
	}
	if p.models != "" {
		h.Write = append(h.Write, p.models)
		h.Env = append(h.Env, "MUSTER_MODELS="+p.models, "HF_HOME="+file(p.models, "hf"))
	}
	if devices := p.d.on.Env.GPUs; devices != nil {
		h.Env = append(h.Env, devices.Environ(grant)...)
	}
	return h, nil
}

// warm has the host of the task ready. The task does without where that cannot be had.
func (p *place) warm(ctx context.Context) error {
	h, err := p.host()
	if err != nil {
		return err
	}
	socket, release, err := p.d.on.Env.Warm.Socket(ctx, h, run.Watch{Step: p.a.Step, Say: p.a.Say})
	if err != nil {
		p.a.Say("the model is loaded for this task alone: " + err.Error())
		return nil //nolint:nilerr // it is slower, and no more than that
	}
	p.a.AtEnd(release)
	p.a.Setenv("MUSTER_WARM", socket)
	return nil
}
