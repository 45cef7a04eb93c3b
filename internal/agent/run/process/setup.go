package process

import (
	"context"
	"os"
	"path/filepath"
	"slices"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
)

// programSetup is what the program of a kind gets besides the attempt's folders.
type programSetup struct {
	env              []string // overrides the spec
	defaultEnv       []string // the spec overrides it
	pythonPath       []string // for PYTHONPATH, as the program sees them
	readable         []string // on the worker
	writable         []string
	mounts           []run.Mount
	modelServerKey   string // of the model server that serves it, "" for none
	startModelServer func(context.Context) error
	cleanups         []func()
}

// InContainer reports whether the program runs in a container.
func (a *Attempt) InContainer() bool { return a.mode == modeContainer }

// Setenv sets a variable of the program and overrides the spec.
func (a *Attempt) Setenv(name, value string) {
	if a.env != nil {
		a.env = run.SetEnv(a.env, name, value)
	}
	a.setup.env = append(a.setup.env, name+"="+value)
}

// SetDefaultEnv sets a variable of the program unless the spec sets it.
func (a *Attempt) SetDefaultEnv(name, value string) {
	a.setup.defaultEnv = append(a.setup.defaultEnv, name+"="+value)
}

// AddPythonPath appends a folder, as the program sees it, to PYTHONPATH.
func (a *Attempt) AddPythonPath(dir string) { a.setup.pythonPath = append(a.setup.pythonPath, dir) }

// UseVenv puts the Python environment at dir first in the program's PATH.
func (a *Attempt) UseVenv(dir string) { a.runtime = dir }

// Expose lets the program read, and with write also change, a folder or a file of the worker. It returns the path that the program
// sees. name is its unique name in a container.
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
		return "", run.Failf(muster.WorkerInternal, "mount %s for the task: %w", name, err)
	}
	target := containerRoot + "/" + name
	a.setup.mounts = append(a.setup.mounts, run.Mount{Source: path, Target: target, ReadOnly: !write})
	return target, nil
}

// makeMountPoint creates the mount point. An engine would create it as root.
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

// WriteFile writes a file beside the task's folder, which is removed with the attempt, and returns the path that the program sees.
func (a *Attempt) WriteFile(name string, data []byte) (string, error) {
	if err := os.WriteFile(filepath.Join(a.base, name), data, 0o600); err != nil {
		return "", run.Failf(muster.WorkerInternal, "write %s for the task: %w", name, err)
	}
	if a.mode == modeContainer {
		return containerRoot + "/" + name, nil
	}
	return filepath.Join(a.base, name), nil
}

// SetModelServer sets the key of the model server that serves the task. That server is not evicted for the task. start is called, for
// a process only, after the task's folders, environment and devices are prepared.
func (a *Attempt) SetModelServer(key string, start func(context.Context) error) {
	a.setup.modelServerKey, a.setup.startModelServer = key, start
}

// Cleanup registers fn to be called when Run returns.
func (a *Attempt) Cleanup(fn func()) { a.setup.cleanups = append(a.setup.cleanups, fn) }

// runCleanups calls the functions registered by Cleanup, last first.
func (a *Attempt) runCleanups() {
	for _, fn := range slices.Backward(a.setup.cleanups) {
		fn()
	}
	a.setup.cleanups = nil
}

func (a *Attempt) startModelServer(ctx context.Context) error {
	if a.setup.startModelServer == nil {
		return nil
	}
	return a.setup.startModelServer(ctx)
}

// evictModels stops model servers that hold GPUs or memory of the task.
func (a *Attempt) evictModels(ctx context.Context) error {
	models := a.executor.deps.ModelPool
	if models == nil {
		return nil
	}
	grant := &a.Task.Grant
	if len(grant.GPUs) > 0 {
		if err := models.Evict(ctx, grant.GPUs, a.setup.modelServerKey); err != nil {
			return run.Failf(muster.WorkerInternal, "unload another task's model from the GPUs: %w", err)
		}
	}
	if a.setup.modelServerKey == "" {
		models.FreeMemory(ctx, grant.Memory)
	}
	return nil
}

// acquireDevices lets the task see only the devices that it was granted, whatever its spec says.
func (a *Attempt) acquireDevices(ctx context.Context) error {
	if err := a.evictModels(ctx); err != nil {
		return err
	}
	devices := a.executor.deps.GPUs
	if devices == nil {
		return nil
	}
	if a.mode != modeContainer { // a container gets its devices from the engine
		a.env = run.MergeEnv(a.env, devices.Environ(&a.Task.Grant))
	}
	devices.Acquire(ctx, a.Task.Attempt, &a.Task.Grant)
	a.hasDevices = true
	return nil
}

// releaseDevices releases the devices. It returns an error if one of them failed while the task used it.
func (a *Attempt) releaseDevices(ctx context.Context) error {
	if !a.hasDevices {
		return nil
	}
	a.hasDevices = false
	if len(a.Task.Grant.GPUs) > 0 && a.proc != nil {
		a.SetStep("checking its GPUs")
	}
	err := a.executor.deps.GPUs.Release(context.WithoutCancel(ctx), a.Task.Attempt, &a.Task.Grant, a.envTag())
	if err != nil && a.exit != nil && a.exit.Code == 0 {
		a.LogLine("the task succeeded, but: " + err.Error())
		return nil
	}
	return err
}
