package kinds

import (
	"context"
	"encoding/json"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/agent/run/process"
	"github.com/muster-dev/muster/internal/agent/run/python"
	"github.com/muster-dev/muster/internal/kind"
)

// Config is what the executors are made of.
type Config struct {
	Env     *run.Env
	Own     []Own
	Options []string // entries of the environment of all tasks: what the worker's owner wants of them
	// Program returns the path of a copy of this program that tasks may execute, also, where everywhere is set, in containers.
	Program func(everywhere bool) (string, error)
}

// New returns an executor for each kind that comes with Muster, and for each of the owner's.
func New(cfg Config) ([]run.Executor, error) {
	dir, err := filepath.Abs(cfg.Env.Dir)
	if err != nil {
		return nil, muster.Errorf(muster.Internal, "the worker's data dir %s has no absolute path: %w", cfg.Env.Dir, err)
	}
	envs, err := python.New(cfg.Env)
	if err != nil {
		return nil, err
	}
	w := &worker{Config: cfg, dir: dir, envs: envs, operations: map[string]*definition{}}
	var all []*definition
	for _, k := range kind.Embedded() {
		all = append(all, &definition{Kind: k, on: w})
	}
	for _, o := range cfg.Own {
		d := &definition{Kind: o.Kind, dir: o.Dir, on: w}
		all = append(all, d)
		if o.Operation {
			w.operations[o.Name] = d
		}
	}
	var list []run.Executor
	for _, d := range all {
		e, err := process.NewKind(cfg.Env, d.Name, process.Extras{Own: true, Program: d.program, Runtime: d.runtime})
		if err != nil {
			return nil, err
		}
		list = append(list, e)
	}
	return list, nil
}

// worker is what all kinds have in common.
type worker struct {
	Config

	dir        string // the worker's data dir
	envs       *python.Envs
	operations map[string]*definition // by name
}

// definition is a kind as this worker runs it.
type definition struct {
	*kind.Kind

	dir string // its folder, "" for one that comes with Muster
	on  *worker
}

// chosen returns the definition that a task is run by, and its input: for kind custom that may be an operation of the owner's.
func (d *definition) chosen(t *muster.TaskSpec) (*definition, json.RawMessage, string) {
	if d.Name != kind.Custom {
		return d, t.Input, "input"
	}
	var named struct {
		Name       string          `json:"name"`
		Parameters json.RawMessage `json:"parameters"`
	}
	if json.Unmarshal(t.Input, &named) == nil {
		if op := d.on.operations[named.Name]; op != nil {
			return op, named.Parameters, "input.parameters"
		}
	}
	return d, t.Input, "input"
}

// program prepares a task and returns what is executed.
func (d *definition) program(ctx context.Context, a *process.Attempt) ([]string, error) {
	spec := a.Task.Spec
	d, input, at := d.chosen(spec)
	if wrong := d.CheckInput(input, true); len(wrong) > 0 {
		return nil, run.Failf(muster.BadInput, "%s", told(wrong, at))
	}
	if len(input) == 0 {
		input = json.RawMessage("{}")
	}
	seen, err := a.Put("input.json", input)
	if err != nil {
		return nil, err
	}
	a.Setenv("MUSTER_INPUT", seen)
	a.Setenv("MUSTER_KIND", d.Name)
	if d.on.Env.AllowPrivate || spec.Network == muster.NetworkAllowlist { // whose proxy judges
		a.Setenv("MUSTER_ALLOW_PRIVATE", "1")
	}
	p := place{d: d, a: a, input: input}
	if err := p.settle(ctx); err != nil {
		return nil, err
	}
	argv, err := p.command(d.Entry)
	if err != nil {
		return nil, err
	}
	if len(d.ModelHost) > 0 && d.on.Env.Warm != nil && !a.InContainer() && spec.Launcher == "" &&
		(spec.Network == "" || spec.Network == muster.NetworkHost) { // a host has the worker's network
		a.ServedBy(p.key(), p.warm)
	}
	return append(argv, words(spec.Run)...), nil
}

// told is all that is wrong with an input in one sentence.
func told(wrong []muster.FieldError, at string) string {
	var parts []string
	for _, e := range wrong {
		if rest, ok := strings.CutPrefix(e.Path, "input"); ok {
			e.Path = at + rest
		}
		parts = append(parts, e.String())
	}
	return strings.Join(parts, "; ")
}

// words is the command of a stage that has one.
func words(c *muster.Command) []string {
	switch {
	case c == nil:
		return nil
	case c.Argv != nil:
		return c.Argv
	}
	return []string{"/bin/sh", "-c", c.Shell}
}

// runtime makes the environment that the stage itself asks for.
func (d *definition) runtime(ctx context.Context, a *process.Attempt) (string, error) {
	root, err := a.Root()
	if err != nil {
		return "", err
	}
	defer func() { _ = root.Close() }() // holds nothing that could be lost
	return d.on.environment(ctx, a.Task.Spec.Python, root, run.Watch{Step: a.Step, Say: a.Say})
}

// environment makes a Python environment with what is asked for; the files that are named lie in root.
func (w *worker) environment(ctx context.Context, p *muster.Python, root *os.Root, watch run.Watch) (string, error) {
	const most = 1 << 20
	want, err := python.Read(p, func(name string) ([]byte, error) {
		info, err := root.Stat(name)
		if err == nil && info.Size() > most {
			return nil, run.Failf(muster.Dependency, "%s is larger than %s", name, muster.Size(most))
		}
		b, err := root.ReadFile(name)
		if err != nil {
			return nil, run.Failf(muster.Dependency, "the requirements cannot be read: %w", err)
		}
		return b, nil
	})
	if err != nil {
		return "", err
	}
	return w.envs.Get(ctx, want, watch)
}

// models returns the folder of models, which is there from the first task on that may use it.
func (w *worker) models() (string, error) {
	dir := filepath.Join(w.dir, "models")
	err := os.MkdirAll(dir, 0o700)
	if err == nil && w.Env.Containers != nil && closed(w.dir) {
		err = os.Chmod(dir, 0o777) //nolint:gosec // whoever an image runs as changes it, and nobody else comes there
	}
	if err != nil {
		return "", run.Failf(muster.WorkerInternal, "the worker's folder of models cannot be made: %w", err)
	}
	return dir, nil
}

// closed reports whether other users of the machine come to nothing in dir: where tasks have a user of their own they do.
func closed(dir string) bool {
	info, err := os.Stat(dir)
	return err == nil && info.Mode().Perm()&0o001 == 0
}

// file is where the program sees a file of a folder that it sees.
func file(dir, name string) string {
	return path.Join(filepath.ToSlash(dir), strings.TrimPrefix(name, "./"))
}
