package process

import (
	"context"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
)

// inheritEnv returns the entries of the worker's environ that a task sees, with defaults for PATH and LANG. HOME is not one of them: a
// task has its own home folder, without credentials, which is removed with it.
func inheritEnv(environ []string) []string {
	var out []string
	for _, name := range []string{"PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "USER", "LOGNAME"} {
		if v := run.LookupEnv(environ, name); v != "" {
			out = append(out, name+"="+v)
		}
	}
	if run.LookupEnv(out, "PATH") == "" {
		out = append(out, "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
	}
	if run.LookupEnv(out, "LANG") == "" {
		out = append(out, "LANG=C.UTF-8")
	}
	return out
}

// buildEnv builds the task's environment. Later entries win: the worker's, the spec's, Muster's. A container inherits from its
// image instead of the worker.
func (a *Attempt) buildEnv(context.Context) error {
	t, spec, paths := a.Task, a.Task.Spec, a.paths()
	env := make([]string, 0, len(a.executor.baseEnv)+len(spec.Env)+20)
	if a.mode != modeContainer {
		env = append(env, a.executor.baseEnv...)
		env = append(env, "HOME="+paths.tmp)
	}
	if c := a.isolation; c != nil && c.User != nil && c.User.Name != "" {
		env = run.SetEnv(run.SetEnv(env, "USER", c.User.Name), "LOGNAME", c.User.Name)
	}
	env = append(env, "TMPDIR="+paths.tmp, "PYTHONUNBUFFERED=1")
	env = run.MergeEnv(env, a.setup.defaultEnv)
	for name, v := range spec.Env {
		if !strings.HasPrefix(name, "MUSTER_") || name == muster.EnvItem {
			env = run.SetEnv(env, name, v)
		}
	}
	for i := range spec.Secrets {
		if name := spec.Secrets[i].Variable(); name != "" {
			env = run.SetEnv(env, name, string(t.Secret(spec.Secrets[i].Name)))
		}
	}
	pythonPath := strings.Join(append(slices.Clone(a.setup.pythonPath), paths.modules), ":")
	if specPath := run.LookupEnv(env, "PYTHONPATH"); specPath != "" {
		pythonPath = specPath + ":" + pythonPath
	}
	env = run.SetEnv(env, "PYTHONPATH", pythonPath)
	if a.runtime != "" {
		env = run.SetEnv(env, "VIRTUAL_ENV", a.runtime)
		if a.mode != modeContainer { // the image has another PATH
			env = run.SetEnv(env, "PATH", filepath.Join(a.runtime, "bin")+":"+run.LookupEnv(env, "PATH"))
		}
	}
	if spec.Network == muster.NetworkAllowlist {
		env = run.MergeEnv(env, run.ProxyEnv(spec.AllowHosts))
	}
	index, values := run.ElementEnv(spec, t.Element)
	env = append(env,
		"MUSTER_JOB="+t.Attempt.Task.Job.String(),
		"MUSTER_TASK="+t.Attempt.Task.String(),
		"MUSTER_ATTEMPT="+strconv.Itoa(t.Attempt.N),
		"MUSTER_INDEX="+index,
		"MUSTER_WORKER="+a.executor.deps.Worker,
		"MUSTER_CHECKPOINT="+paths.checkpoint,
		"MUSTER_OUT="+paths.out,
		"MUSTER_EVENTS="+paths.events,
	)
	if a.mode == modeContainer {
		env = append(env, a.envTag())
	}
	env = append(env, a.gangEnv()...)
	a.env = run.MergeEnv(append(env, values...), a.setup.env)
	return nil
}

// eventsPath is $MUSTER_EVENTS, on the worker.
func (a *Attempt) eventsPath() string { return filepath.Join(a.base, "events") }

// taskPaths are the attempt's folders and its events file, as its program sees them.
type taskPaths struct{ work, out, tmp, checkpoint, modules, events string }

func (a *Attempt) paths() taskPaths {
	if a.mode == modeContainer {
		return containerPaths
	}
	return taskPaths{
		work: a.Dir, out: a.outDir(), tmp: filepath.Join(a.base, "tmp"), checkpoint: a.checkpoint,
		modules: filepath.Join(a.executor.deps.Dir, "sdk"), events: a.eventsPath(),
	}
}

// gangEnv returns the variables for the task's rank in its gang and for its devices. Without a launcher, which sets them for each
// of its processes, it includes the variables that PyTorch reads.
func (a *Attempt) gangEnv() []string {
	rank, size := "0", "1"
	var env []string
	if g := a.Task.Gang; g != nil {
		rank, size = strconv.Itoa(g.Rank), strconv.Itoa(g.Size)
		port := strconv.Itoa(g.Port)
		env = append(env, "MUSTER_MASTER_ADDR="+g.Master, "MUSTER_MASTER_PORT="+port)
		if a.Task.Spec.Launcher == "" {
			env = append(env, "RANK="+rank, "LOCAL_RANK=0", "WORLD_SIZE="+size, "MASTER_ADDR="+g.Master, "MASTER_PORT="+port)
		}
	}
	return append(env, "MUSTER_RANK="+rank, "MUSTER_WORLD_SIZE="+size, "MUSTER_GPUS="+strings.Join(a.Task.Grant.GPUs, ","))
}
