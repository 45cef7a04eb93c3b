package workerd

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/agent/run/python"
	"github.com/muster-dev/muster/internal/agent/shim"
	"github.com/muster-dev/muster/internal/agent/shim/proctree"
	"github.com/muster-dev/muster/internal/tasklog"
)

// openSupervisor opens the supervisor of tasks' processes, and kills processes that built Python environments before a restart of
// the worker.
func (w *Worker) openSupervisor(ctx context.Context) (*shim.Client, error) {
	if err := proctree.KillTagged(python.EnvTag(w.cfg.Data)); err != nil {
		w.log.Warn("cannot end a tool from before the restart", slog.Any("error", err))
	}
	return shim.Open(ctx, shim.Config{Dir: w.cfg.Data, Command: w.cfg.Shim, Log: w.log})
}

// unreported returns the recovered attempts that continue. For those with a report the previous process may already have begun to remove
// their resources.
func unreported(recovered []run.Recovered) []run.Recovered {
	return slices.DeleteFunc(slices.Clone(recovered), func(h run.Recovered) bool { return h.Report != nil })
}

// cleanUp removes what is left on disk from before a restart: the folders of tasks that do not continue, and the logs of jobs without a
// recovered task or a stored report.
func (w *Worker) cleanUp(ctx context.Context, store *agent.ReportStore, recovered []run.Recovered) (*tasklog.Dir, error) {
	w.removeFolders(unreported(recovered))
	folder := filepath.Join(w.cfg.Data, "logs")
	logs, err := tasklog.OpenDir(folder)
	if err != nil {
		return nil, err
	}
	reports, err := store.Reports()
	if err != nil {
		return logs, nil //nolint:nilerr // the agent logs damaged reports; their logs stay
	}
	keepJobs := map[muster.JobID]bool{}
	for i := range reports {
		keepJobs[reports[i].Attempt.Task.Job] = true
	}
	for i := range recovered {
		keepJobs[recovered[i].Start.Attempt.Task.Job] = true
	}
	jobs, err := os.ReadDir(folder)
	if err != nil {
		return nil, errors.Join(muster.Errorf(muster.Internal, "cannot read the directory of logs: %w", err), logs.Close())
	}
	for _, d := range jobs {
		job, err := muster.ParseJobID(d.Name())
		if err != nil || keepJobs[job] {
			continue
		}
		if err := logs.Remove(ctx, job); err != nil {
			w.log.Warn("cannot remove the logs of an earlier job", slog.Any("error", err))
		}
	}
	for more := true; more && err == nil; {
		if _, more, err = logs.Sweep(1000); err != nil {
			w.log.Warn("cannot delete the logs of earlier jobs", slog.Any("error", err))
		}
	}
	return logs, nil
}

// removeFolders removes the folders of all tasks but the recovered ones.
func (w *Worker) removeFolders(recovered []run.Recovered) {
	root := filepath.Join(w.cfg.Data, "tasks")
	keepDirs := map[string]bool{}
	for i := range recovered {
		if rel, err := filepath.Rel(root, recovered[i].Start.Dir); err == nil {
			name, _, _ := strings.Cut(filepath.ToSlash(rel), "/")
			keepDirs[name] = true
		}
	}
	folders, err := os.ReadDir(root)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		w.log.Warn("cannot list the folders of earlier tasks", slog.Any("error", err))
	}
	for _, d := range folders {
		if keepDirs[d.Name()] {
			continue
		}
		if err := os.RemoveAll(filepath.Join(root, d.Name())); err != nil {
			w.log.Warn("cannot remove the folder of an earlier task", slog.Any("error", err))
		}
	}
}
