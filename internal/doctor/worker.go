package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent"
	"github.com/muster-dev/muster/internal/agent/isolation/cgroup"
	"github.com/muster-dev/muster/internal/agent/run/process"
	"github.com/muster-dev/muster/internal/agent/shim"
	"github.com/muster-dev/muster/internal/cli/term"
)

// dataDirUse is the processes that use the data dir.
type dataDirUse struct {
	worker bool
	pid    int // of the worker, 0 if unknown
	shims  []shim.Status
}

// inUse reports whether a process uses the data dir.
func (l *dataDirUse) inUse() bool {
	return l.worker || slices.ContainsFunc(l.shims, func(s shim.Status) bool { return !s.Stale })
}

func (r *inspection) dataDirUse() (dataDirUse, error) {
	lock := filepath.Join(r.Data, "reports.db")
	isLocked, err := locked(lock)
	if err != nil {
		return dataDirUse{}, err
	}
	l := dataDirUse{worker: isLocked}
	if isLocked {
		l.pid = r.lockHolder(lock)
	}
	l.shims, err = shim.Inspect(r.Data)
	return l, err
}

// running reports the worker and the shim of its tasks.
func (r *inspection) running(ctx context.Context) []Finding {
	l, err := r.dataDirUse()
	if err != nil {
		return single("running", Warning, "run the doctor as the user of the worker", "cannot find out whether tasks run: %s", err)
	}
	var pids []string
	orphans := 0
	for _, h := range l.shims {
		if h.PID > 0 {
			pids = append(pids, strconv.Itoa(h.PID))
		}
		orphans += h.Orphans
	}
	shimNote := ""
	if len(pids) > 0 {
		shimNote = "; the shim of its tasks is process " + strings.Join(pids, ", ")
	}
	switch {
	case l.worker && l.pid == 0:
		return single("running", OK, "", "a worker runs on this data dir%s", shimNote)
	case l.worker && r.exeReplaced(l.pid):
		return single("running", Note, fmt.Sprintf("`kill -USR2 %d` restarts it; running tasks continue", l.pid), "the worker, process %d, runs a binary that was replaced%s", l.pid, shimNote)
	case l.worker:
		return r.runningFinding(ctx, l.pid, shimNote)
	case len(pids) > 0:
		return single("running", Warning, "start the worker: it recovers the tasks", "no worker is running; its tasks keep running until their leases expire%s", shimNote)
	case orphans > 0:
		return single("running", Warning, "start the worker: it kills them", "processes of %s are still running without a worker or a shim", term.Plural(orphans, "task"))
	}
	return single("running", Note, "", "no worker runs on this data dir")
}

// runningFinding reports the running worker as the server sees it.
func (r *inspection) runningFinding(ctx context.Context, pid int, shimNote string) []Finding {
	ok := single("running", OK, "", "the worker, process %d, runs on this data dir%s", pid, shimNote)
	id, joined, err := agent.LoadIdentity(r.Data)
	if err != nil || !joined || !r.probed().isMuster || r.Server.Token == "" || strings.TrimRight(id.Server, "/") != strings.TrimRight(r.Server.URL, "/") {
		return ok
	}
	c, err := r.client(r.Server.URL, r.Server.Token)
	if err != nil {
		return ok
	}
	w, err := c.Worker(ctx, string(id.Worker))
	switch {
	case err != nil:
		return ok
	case w.State == muster.WorkerUnreachable || w.State == muster.WorkerGone:
		return single("running", Problem, "check its log", "the worker, process %d, runs, but is %s for the server", pid, w.State)
	case w.Constrained != "":
		return single("running", Note, "", "the worker, process %d, runs, and takes no new tasks: %s", pid, w.Constrained)
	case w.Version != "" && w.Version != r.Version:
		return single("running", Note, fmt.Sprintf("`kill -USR2 %d` restarts it with its current binary; running tasks continue", pid), "the worker, process %d, is %s, and this program is %s", pid, w.Version, r.Version)
	}
	return ok
}

// workerCleansUp is the fix of leftovers.
const workerCleansUp = "start the worker: it removes them"

// leftovers reports what workers that no longer run have left in the data dir.
func (r *inspection) leftovers(context.Context) []Finding {
	l, err := r.dataDirUse()
	if err != nil || l.inUse() {
		return nil // running reports it; the worker cleans up
	}
	var list []Finding
	if n := len(l.shims); n > 0 {
		list = append(list, newFinding("shims", Note, workerCleansUp, "%s of shims that have exited", term.Plural(n, "folder")))
	}
	tasks, err := os.ReadDir(filepath.Join(r.Data, "tasks"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return append(list, newFinding("task-folders", Warning, "", "cannot list the folders of tasks: %s", err))
	}
	tasks = slices.DeleteFunc(tasks, func(t fs.DirEntry) bool { return t.Name() == process.PoolDir }) // it belongs to no task
	if n := len(tasks); n > 0 {
		list = append(list, newFinding("task-folders", Warning, workerCleansUp, "%s of tasks that ended with their worker, in %s", term.Plural(n, "folder"), filepath.Join(r.Data, "tasks")))
	}
	return list
}

// groups reports control groups that workers have left.
func (r *inspection) groups(context.Context) []Finding {
	l, err := r.dataDirUse()
	if err != nil {
		return nil // running reports it
	}
	var own, others []cgroup.WorkerGroup
	for _, g := range cgroup.WorkerGroups(r.Data) {
		switch {
		case g.Own && !l.inUse():
			own = append(own, g)
		case !g.Own && g.Processes == 0:
			others = append(others, g)
		}
	}
	var list []Finding
	if len(own) > 0 {
		list = append(list, groupFinding(own))
	}
	if len(others) > 0 {
		list = append(list, newFinding("other-groups", Note, "if no worker uses them: `rmdir` each, such as `rmdir "+others[0].Path+"`",
			"%s of workers with other data dirs have no processes: %s", term.Plural(len(others), "control group"), paths(others)))
	}
	return list
}

func groupFinding(own []cgroup.WorkerGroup) Finding {
	groups, processes := 0, 0
	for _, g := range own {
		groups += 1 + g.Groups
		processes += g.Processes
	}
	fix, suffix := workerCleansUp, ""
	if processes > 0 {
		fix, suffix = "start the worker: it kills them", fmt.Sprintf(", with %d processes in them", processes)
	}
	return newFinding("groups", Warning, fix, "%s of a worker that no longer runs%s: %s", term.Plural(groups, "control group"), suffix, paths(own))
}

func paths(groups []cgroup.WorkerGroup) string {
	var all []string
	for _, g := range groups {
		all = append(all, g.Path)
	}
	return firstNames(all)
}

// firstNames joins the first names of a list.
func firstNames(names []string) string {
	const maxNames = 4
	if len(names) <= maxNames {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNames], ", "), len(names)-maxNames)
}
