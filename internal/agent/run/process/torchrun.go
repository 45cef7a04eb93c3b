package process

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
)

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
	searchDirs := strings.Split(lookupEnv(a.env, "PYTHONPATH"), ":")
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
	n := a.Task.Spec.NProcPerNode
	if n == 0 {
		n = max(len(a.Task.Grant.GPUs), 1)
	}
	perNode := "--nproc_per_node=" + strconv.Itoa(n)
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

var pythonName = regexp.MustCompile(`^python[0-9.]*$`)

// torchrunProgram returns the program as arguments of torchrun: a Python script or module without its interpreter, anything else
// behind noPython.
func torchrunProgram(argv []string) []string {
	if strings.HasSuffix(argv[0], ".py") {
		return argv
	}
	if pythonName.MatchString(filepath.Base(argv[0])) {
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
