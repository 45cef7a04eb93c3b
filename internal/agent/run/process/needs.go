package process

import (
	"context"
	"os"
	"path/filepath"
	"slices"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
)

// needs are what the program of a kind has besides the attempt's own folders.
type needs struct {
	env     []string // over what the spec says
	usual   []string // where the spec says nothing
	modules []string // for PYTHONPATH, as the program sees them
	read    []string // on the worker
	write   []string
	mounts  []run.Mount
	warm    string // the key of the host that serves it, "" for none
	ready   func(context.Context) error
	after   []func() // for the end of the attempt
}

// InContainer reports whether the program runs in a container.
func (a *Attempt) InContainer() bool { return a.setting == inContainer }

// Setenv sets a variable of the program's, whatever the spec says.
func (a *Attempt) Setenv(name, value string) {
	if a.env != nil {
		a.env = set(a.env, name, value)
	}
	a.needs.env = append(a.needs.env, name+"="+value)
}

// Default sets a variable of the program's where the spec does not.
func (a *Attempt) Default(name, value string) { a.needs.usual = append(a.needs.usual, name+"="+value) }

// Import puts a folder, as the program sees it, where its Python looks for modules: behind what the spec names.
func (a *Attempt) Import(dir string) { a.needs.modules = append(a.needs.modules, dir) }

// UsePython puts the Python environment in a folder of the worker's first on the program's PATH.
func (a *Attempt) UsePython(dir string) { a.runtime = dir }

// Lend lets the program read a folder or a file of the worker's, or change it, and returns where it sees it. name is that
// of its place in a container, and no one else's.
func (a *Attempt) Lend(path, name string, write bool) (string, error) {
	if a.setting != inContainer {
		if write {
			a.needs.write = append(a.needs.write, path)
		} else {
			a.needs.read = append(a.needs.read, path)
		}
		return path, nil
	}
	if err := a.mountPoint(path, name); err != nil {
		return "", run.Failf(muster.WorkerInternal, "%s cannot be given to the task: %w", name, err)
	}
	at := boxTop + "/" + name
	a.needs.mounts = append(a.needs.mounts, run.Mount{Source: path, Target: at, ReadOnly: !write})
	return at, nil
}

// mountPoint makes what is mounted on. An engine would make it, as root.
func (a *Attempt) mountPoint(path, name string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	at := filepath.Join(a.base, name)
	if info.IsDir() {
		return os.MkdirAll(at, 0o700)
	}
	return os.WriteFile(at, nil, 0o600)
}

// Put writes a file beside the task's folder, which is removed with it, and returns where the program sees it.
func (a *Attempt) Put(name string, data []byte) (string, error) {
	if err := os.WriteFile(filepath.Join(a.base, name), data, 0o600); err != nil {
		return "", run.Failf(muster.WorkerInternal, "%s cannot be written for the task: %w", name, err)
	}
	if a.setting == inContainer {
		return boxTop + "/" + name, nil
	}
	return filepath.Join(a.base, name), nil
}

// ServedBy says which host keeps the model of the task loaded: it is not ended to make room for the task. ready is called for
// a process, when its folders, its environment and its devices are as they will be.
func (a *Attempt) ServedBy(key string, ready func(context.Context) error) {
	a.needs.warm, a.needs.ready = key, ready
}

// AtEnd has something done when the attempt has ended here, or is left to the worker's next life.
func (a *Attempt) AtEnd(do func()) { a.needs.after = append(a.needs.after, do) }

// atEnd does what was asked for by AtEnd.
func (a *Attempt) atEnd() {
	for _, do := range slices.Backward(a.needs.after) {
		do()
	}
	a.needs.after = nil
}

// host has the one that serves the task made ready.
func (a *Attempt) host(ctx context.Context) error {
	if a.needs.ready == nil {
		return nil
	}
	return a.needs.ready(ctx)
}

// room ends hosts that keep models loaded where the task needs what they hold.
func (a *Attempt) room(ctx context.Context) error {
	hosts := a.e.env.Warm
	if hosts == nil {
		return nil
	}
	grant := &a.Task.Grant
	if len(grant.GPUs) > 0 {
		if err := hosts.Evict(ctx, grant.GPUs, a.needs.warm); err != nil {
			return run.Failf(muster.WorkerInternal, "a model that another task left loaded on its GPUs does not go: %w", err)
		}
	}
	if a.needs.warm == "" {
		hosts.Room(ctx, grant.Memory)
	}
	return nil
}
