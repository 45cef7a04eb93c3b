package process

import (
	"context"
	"os"
	"path/filepath"
	"slices"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
)

// programSetup are what the program of a kind has besides the attempt's own folders.
type programSetup struct {
	env              []string // over what the spec says
	defaultEnv       []string // where the spec says nothing
	pythonPath       []string // for PYTHONPATH, as the program sees them
	readable         []string // on the worker
	writable         []string
	mounts           []run.Mount
	modelServerKey   string // the key of the host that serves it, "" for none
	startModelServer func(context.Context) error
	cleanups         []func() // for the end of the attempt
}

// InContainer reports whether the program runs in a container.
func (a *Attempt) InContainer() bool { return a.mode == modeContainer }

// Setenv sets a variable of the program's, whatever the spec says.
func (a *Attempt) Setenv(name, value string) {
	if a.env != nil {
		a.env = setEnv(a.env, name, value)
	}
	a.setup.env = append(a.setup.env, name+"="+value)
}

// SetDefaultEnv sets a variable of the program's where the spec does not.
func (a *Attempt) SetDefaultEnv(name, value string) {
	a.setup.defaultEnv = append(a.setup.defaultEnv, name+"="+value)
}

// AddPythonPath puts a folder, as the program sees it, where its Python looks for modules: behind what the spec names.
func (a *Attempt) AddPythonPath(dir string) { a.setup.pythonPath = append(a.setup.pythonPath, dir) }

// UseVenv puts the Python environment in a folder of the worker's first on the program's PATH.
func (a *Attempt) UseVenv(dir string) { a.runtime = dir }

// Expose lets the program read a folder or a file of the worker's, or change it, and returns where it sees it. name is that
// of its place in a container, and no one else's.
func (a *Attempt) Expose(path, name string, write bool) (string, error) {
	if a.mode != modeContainer {
		if write {
			a.setup.writable = append(a.setup.writable, path)
		} else {
			a.setup.readable = append(a.setup.readable, path)
		}
		return path, nil
	}
	if err := a.makeMountPoint(path, name); err != nil {
		return "", run.Failf(muster.WorkerInternal, "%s cannot be given to the task: %w", name, err)
	}
	target := containerRoot + "/" + name
	a.setup.mounts = append(a.setup.mounts, run.Mount{Source: path, Target: target, ReadOnly: !write})
	return target, nil
}

// makeMountPoint makes what is mounted on. An engine would make it, as root.
func (a *Attempt) makeMountPoint(path, name string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	target := filepath.Join(a.base, name)
	if info.IsDir() {
		return os.MkdirAll(target, 0o700)
	}
	return os.WriteFile(target, nil, 0o600)
}

// WriteFile writes a file beside the task's folder, which is removed with it, and returns where the program sees it.
func (a *Attempt) WriteFile(name string, data []byte) (string, error) {
	if err := os.WriteFile(filepath.Join(a.base, name), data, 0o600); err != nil {
		return "", run.Failf(muster.WorkerInternal, "%s cannot be written for the task: %w", name, err)
	}
	if a.mode == modeContainer {
		return containerRoot + "/" + name, nil
	}
	return filepath.Join(a.base, name), nil
}

// SetModelServer says which host keeps the model of the task loaded: it is not ended to make room for the task. ready is called for
// a process, when its folders, its environment and its devices are as they will be.
func (a *Attempt) SetModelServer(key string, start func(context.Context) error) {
	a.setup.modelServerKey, a.setup.startModelServer = key, start
}

// Cleanup has something done when the attempt has ended here, or is left to the worker's next life.
func (a *Attempt) Cleanup(fn func()) { a.setup.cleanups = append(a.setup.cleanups, fn) }

// runCleanups does what was asked for by Cleanup.
func (a *Attempt) runCleanups() {
	for _, fn := range slices.Backward(a.setup.cleanups) {
		fn()
	}
	a.setup.cleanups = nil
}

// startModelServer has the one that serves the task made ready.
func (a *Attempt) startModelServer(ctx context.Context) error {
	if a.setup.startModelServer == nil {
		return nil
	}
	return a.setup.startModelServer(ctx)
}

// evictModels ends hosts that keep models loaded where the task needs what they hold.
func (a *Attempt) evictModels(ctx context.Context) error {
	models := a.executor.deps.ModelPool
	if models == nil {
		return nil
	}
	grant := &a.Task.Grant
	if len(grant.GPUs) > 0 {
		if err := models.Evict(ctx, grant.GPUs, a.setup.modelServerKey); err != nil {
			return run.Failf(muster.WorkerInternal, "a model that another task left loaded on its GPUs does not go: %w", err)
		}
	}
	if a.setup.modelServerKey == "" {
		models.FreeMemory(ctx, grant.Memory)
	}
	return nil
}
