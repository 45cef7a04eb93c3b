package process

import (
	"context"
	"io"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
)

// prepareRuntime prepares the Python environment that the spec asks for. In a container it is a mount that the task cannot change.
func (a *Attempt) prepareRuntime(ctx context.Context) error {
	if a.Task.Spec.Python == nil {
		return nil
	}
	if a.executor.kindHooks.Python == nil {
		return run.Failf(muster.TaskInvalid, "kind %s does not support python: use kind script", a.executor.kind)
	}
	root, err := a.OpenRoot()
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	r := &run.PythonRequest{Project: a.Task.Project, Python: a.Task.Spec.Python, Root: root, Files: a.Task.Spec.Files, Fetch: a.fetchFiles}
	if a.mode != modeContainer {
		a.runtime, err = a.executor.kindHooks.Python(ctx, r, a.Observer())
		return err
	}
	id, name, err := a.executor.deps.Containers.Image(ctx, a.Task, a.LogLine, a.SetStep)
	if err != nil {
		return a.processInstead(ctx, err)
	}
	r.Image = &run.PythonImage{ID: id, Name: name, Run: a.runInImage}
	dir, err := a.executor.kindHooks.Python(ctx, r, a.Observer())
	if err != nil {
		return err
	}
	a.runtime, err = a.Expose(dir, "python", false)
	return err
}

// runInImage runs a program in a container of the task's image, with the task's limits and user, but without its devices, mounts and
// other options. It has the network that containers have by default: it fetches packages.
func (a *Attempt) runInImage(ctx context.Context, tool *run.ImageTool, w io.Writer) (int, error) {
	task, spec := *a.Task, *a.Task.Spec
	task.Spec, task.Grant.GPUs = &spec, nil
	spec.Network, spec.AllowHosts, spec.Stdin, spec.Container = "", nil, "", &muster.Container{}
	if c := a.Task.Spec.Container; c != nil {
		spec.Container.User, spec.Container.Pull = c.User, c.Pull
	}
	b := &run.ContainerSpec{Task: &task, Argv: tool.Argv, HasInterpreter: true, Env: tool.Env, Dir: tool.Dir, Mounts: tool.Mounts, NoInit: true, Prepared: true}
	b.OpenMounts = func() error {
		for _, m := range tool.Mounts {
			if m.ReadOnly {
				continue
			}
			if err := makeWritable(m.Source); err != nil {
				return run.Failf(muster.WorkerInternal, "open the folder of a Python environment to the container's user: %w", err)
			}
		}
		return nil
	}
	return a.executor.deps.Containers.RunTool(ctx, b, w)
}
