package process

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
)

// workdir makes the attempt's folders.
func (a *Attempt) workdir(context.Context) error {
	id := a.Task.Attempt
	a.base = filepath.Join(a.e.dir, "tasks", id.Task.String()+"-"+strconv.Itoa(id.N))
	a.Dir = filepath.Join(a.base, "work")
	err := os.Mkdir(a.base, 0o700)
	if errors.Is(err, fs.ErrExist) {
		// From an earlier life of the worker, which had no time to clean up.
		if err = removeAll(a.base); err == nil {
			err = os.Mkdir(a.base, 0o700)
		}
	}
	for _, name := range []string{"work", "out", "tmp"} {
		if err == nil {
			err = os.Mkdir(filepath.Join(a.base, name), 0o700)
		}
	}
	if err == nil {
		a.checkpoint, err = a.e.checkpoints.take(id.Task)
	}
	if err != nil {
		return run.Failf(muster.WorkerInternal, "the task's folder cannot be made: %w", err)
	}
	return nil
}

func (a *Attempt) out() string { return filepath.Join(a.base, "out") }

// mark is the environment entry that tells this attempt's processes from all
// others of the machine.
func (a *Attempt) mark() string { return "MUSTER_OUT=" + a.out() }

// removeAll removes a folder, also where a task took its own rights away.
func removeAll(dir string) error {
	if os.RemoveAll(dir) == nil {
		return nil
	}
	walk := func(path string, d fs.DirEntry, _ error) error {
		if d != nil && d.IsDir() {
			return os.Chmod(path, 0o700) //nolint:gosec // a folder needs its x bit
		}
		return nil
	}
	if err := filepath.WalkDir(dir, walk); err != nil {
		return fmt.Errorf("remove %s: %w", dir, err)
	}
	return os.RemoveAll(dir)
}
