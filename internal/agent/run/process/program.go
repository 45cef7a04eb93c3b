package process

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
)

// resolveProgram sets the command to execute.
func (a *Attempt) resolveProgram(ctx context.Context) error {
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

// prepareRuntime prepares the Python environment that the spec asks for.
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
	a.runtime, err = a.executor.kindHooks.Python(ctx, a.Task.Spec.Python, root, a.Observer())
	return err
}

// lookPath finds the file of a command as the task would: relative to its folder if the name has a slash, otherwise in its PATH.
func (a *Attempt) lookPath(name string) (string, error) {
	if strings.ContainsRune(name, '/') {
		path := name
		if !filepath.IsAbs(path) {
			path = filepath.Join(a.Dir, path)
		}
		return path, a.checkExecutable(name, path)
	}
	for dir := range strings.SplitSeq(lookupEnv(a.env, "PATH"), ":") {
		if dir == "" {
			continue // it means the task's folder, which is unsafe
		}
		if !filepath.IsAbs(dir) {
			dir = filepath.Join(a.Dir, dir)
		}
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return path, nil
		}
	}
	if _, err := os.Stat(filepath.Join(a.Dir, name)); err == nil {
		return "", run.Failf(muster.StartFailed, "%s: no such command on this worker's PATH: to run the file in the task's folder, use ./%s", name, name)
	}
	return "", run.Failf(muster.StartFailed, "%s: no such command on this worker: install it there, or choose workers that have it with where.tags", name)
}

// checkExecutable returns why the file cannot be executed.
func (a *Attempt) checkExecutable(name, path string) error {
	info, err := os.Stat(path)
	where := "on this worker"
	if !filepath.IsAbs(name) {
		where = "in the task's folder"
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return run.Failf(muster.StartFailed, "%s: no such file %s", name, where)
	case err != nil:
		return run.Failf(muster.StartFailed, "cannot execute %s: %w", name, err)
	case info.IsDir():
		return run.Failf(muster.StartFailed, "%s is a folder, not a program", name)
	case info.Mode()&0o111 == 0:
		return run.Failf(muster.StartFailed, "%s is not executable: run chmod +x on it, or pass it to its interpreter", name)
	}
	return nil
}
