package process

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/lazyregexp"
)

// resolveProgram sets the command to execute.
func (a *Attempt) resolveProgram(ctx context.Context) error {
	defer func() { a.programArgv = a.argv }()
	if a.executor.kindHooks.Program != nil {
		argv, err := a.executor.kindHooks.Program(ctx, a)
		if err != nil || argv != nil {
			a.argv, a.hasInterpreter = argv, true
			return err
		}
	}
	switch r := a.Task.Spec.Run; {
	case (r == nil || len(r.Argv) == 0 && r.Shell == "") && a.mode == modeContainer:
		// The image has a command.
	case r == nil || len(r.Argv) == 0 && r.Shell == "":
		return run.Failf(muster.TaskInvalid, "no command: set run")
	case len(r.Argv) > 0:
		a.argv = r.Argv
	default:
		a.argv, a.hasInterpreter = []string{"/bin/sh", "-c", r.Shell}, true
	}
	return nil
}

// lookPath finds the file of a command as the task would: see run.LookPath.
func (a *Attempt) lookPath(name string) (string, error) {
	path, err := run.LookPath(a.env, a.Dir, name)
	if err == nil {
		return path, nil
	}
	if !strings.ContainsRune(name, '/') {
		if _, err := os.Stat(filepath.Join(a.Dir, name)); err == nil {
			return "", run.StartFailf(run.ExitNotFound, "%s: no such command on this worker's PATH: to run the file in the task's folder, use ./%s", name, name)
		}
		return "", run.StartFailf(run.ExitNotFound, "%s: no such command on this worker: install it there, or choose workers that have it with where.tags", name)
	}
	where := "on this worker"
	if !filepath.IsAbs(name) {
		where = "in the task's folder"
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", run.StartFailf(run.ExitNotFound, "%s: no such file %s", name, where)
	case errors.Is(err, run.ErrIsFolder):
		return "", run.StartFailf(run.ExitNotExecutable, "%s is a folder, not a program", name)
	case errors.Is(err, run.ErrNotExecutable):
		return "", run.StartFailf(run.ExitNotExecutable, "%s is not executable: run chmod +x on it, or pass it to its interpreter", name)
	}
	return "", run.StartFailf(run.ExitNotExecutable, "cannot execute %s: %w", name, err)
}

// applyLauncher prepends the spec's launcher to the command.
func (a *Attempt) applyLauncher(context.Context) error {
	if a.Task.Spec.Launcher != muster.LauncherTorchrun {
		return nil
	}
	if len(a.argv) == 0 {
		return run.Failf(muster.TaskInvalid, "launcher %s cannot start the image's default command: set run", muster.LauncherTorchrun)
	}
	launcher, err := a.torchrun()
	if err != nil {
		return err
	}
	program := torchrunProgram(a.argv)
	if program[0] == noPython && a.mode != modeContainer {
		if _, err := a.lookPath(a.argv[0]); err != nil {
			return err
		}
	}
	a.argv = slices.Concat(launcher, a.torchrunArgs(), program)
	return nil
}

// torchrun finds the launcher in the task's environment. It executes nothing: the files may be the task's own.
func (a *Attempt) torchrun() ([]string, error) {
	if a.mode == modeContainer {
		return []string{muster.LauncherTorchrun}, nil // the image may have it; its start will show
	}
	if _, err := a.lookPath(muster.LauncherTorchrun); err == nil {
		return []string{muster.LauncherTorchrun}, nil
	}
	for _, name := range []string{"python3", "python"} {
		if python, err := a.lookPath(name); err == nil && a.hasTorch(python) {
			return []string{name, "-m", "torch.distributed.run"}, nil
		}
	}
	return nil, run.Failf(muster.Dependency, "launcher torchrun not found: it is not in the task's PATH, and no Python there has torch: "+
		"add torch to python.packages, or choose workers that have it with where.tags")
}

// hasTorch reports whether torch is in PYTHONPATH, in the packages of the interpreter's environment, or in those of its base Python.
func (a *Attempt) hasTorch(python string) bool {
	searchDirs := strings.Split(run.LookupEnv(a.env, "PYTHONPATH"), ":")
	prefixes := []string{filepath.Dir(filepath.Dir(python))}
	if target, err := filepath.EvalSymlinks(python); err == nil {
		prefixes = append(prefixes, filepath.Dir(filepath.Dir(target)))
	}
	for _, prefix := range prefixes {
		for _, lib := range []string{"lib", "lib64", "local/lib"} {
			versions, _ := filepath.Glob(filepath.Join(prefix, lib, "python3*")) // the only error is a bad pattern
			for _, v := range versions {
				searchDirs = append(searchDirs, filepath.Join(v, "site-packages"), filepath.Join(v, "dist-packages"))
			}
		}
	}
	return slices.ContainsFunc(searchDirs, func(dir string) bool {
		if dir == "" {
			return false
		}
		if !filepath.IsAbs(dir) {
			dir = filepath.Join(a.Dir, dir)
		}
		info, err := os.Stat(filepath.Join(dir, "torch", "distributed", "run.py"))
		return err == nil && info.Mode().IsRegular()
	})
}

// torchrunArgs returns the options for the nodes, which are the members of the gang, and the number of processes.
func (a *Attempt) torchrunArgs() []string {
	perNode := "--nproc_per_node=" + strconv.Itoa(cmp.Or(a.Task.Spec.NProcPerNode, max(len(a.Task.Grant.GPUs), 1)))
	g := a.Task.Gang
	if g == nil {
		return []string{"--standalone", "--nnodes=1", perNode}
	}
	return []string{
		"--nnodes=" + strconv.Itoa(g.Size), "--node_rank=" + strconv.Itoa(g.Rank), "--master_addr=" + g.Master, "--master_port=" + strconv.Itoa(g.Port), perNode,
	}
}

// noPython makes torchrun execute the program without an interpreter.
const noPython = "--no_python"

var pythonName = lazyregexp.New(`^python[0-9.]*$`)

// torchrunProgram returns the program as arguments of torchrun: a Python script or module without its interpreter, anything else
// behind noPython.
func torchrunProgram(argv []string) []string {
	if strings.HasSuffix(argv[0], ".py") {
		return argv
	}
	if pythonName.Get().MatchString(filepath.Base(argv[0])) {
		rest := argv[1:]
		if len(rest) > 0 && rest[0] == "-u" { // torchrun sets it too
			rest = rest[1:]
		}
		switch {
		case len(rest) > 1 && rest[0] == "-m":
			return rest
		case len(rest) > 0 && !strings.HasPrefix(rest[0], "-"):
			return rest
		}
	}
	return append([]string{noPython}, argv...)
}
