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
)

// dataDirUse is who uses the data dir.
type dataDirUse struct {
	worker bool
	pid    int // of the worker, 0 if it is not known
	shims  []shim.Status
}

// inUse reports whether nothing of the data dir may be touched.
func (l *dataDirUse) inUse() bool {
	for _, h := range l.shims {
		if !h.Stale {
			return true
		}
	}
	return l.worker
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

// running tells of the worker and of what stands by its tasks.
func (r *inspection) running(ctx context.Context) []Finding {
	l, err := r.dataDirUse()
	if err != nil {
		return single("running", Warning, "run the doctor as the user whom the worker runs as", "whether tasks go on is not known: %s", err)
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
		shimNote = "; its tasks are stood by by process " + strings.Join(pids, ", ")
	}
	switch {
	case l.worker && l.pid == 0:
		return single("running", OK, "", "a worker runs on this data dir%s", shimNote)
	case l.worker && r.exeReplaced(l.pid):
		return single("running", Note, fmt.Sprintf("`kill -USR2 %d`: tasks go on", l.pid), "the worker, process %d, runs a program whose file was replaced since%s", l.pid, shimNote)
	case l.worker:
		return r.runningFinding(ctx, l.pid, shimNote)
	case len(pids) > 0:
		return single("running", Warning, "start the worker: it takes the tasks up again", "no worker runs on this data dir, and tasks of its last life go on without it until their leases end%s", shimNote)
	case orphans > 0:
		return single("running", Warning, "start the worker: it ends them", "processes of %s go on, and neither a worker nor a shim stands by them", plural(orphans, "task"))
	}
	return single("running", Note, "", "no worker runs on this data dir")
}

// runningFinding tells how the running worker does, as the server sees it.
func (r *inspection) runningFinding(ctx context.Context, pid int, shimNote string) []Finding {
	ok := single("running", OK, "", "the worker, process %d, runs on this data dir%s", pid, shimNote)
	id, joined, err := agent.LoadIdentity(r.Data)
	if err != nil || !joined || !r.probed().isMuster || r.Server.Token == "" || strings.TrimRight(id.Server, "/") != strings.TrimRight(r.Server.URL, "/") {
		return ok
	}
	w, err := r.worker(ctx, id.Worker)
	switch {
	case err != nil:
		return ok
	case w.State == muster.WorkerUnreachable || w.State == muster.WorkerGone:
		return single("running", Problem, "look at its log", "the worker, process %d, runs, and the server has it as %s", pid, w.State)
	case w.Constrained != "":
		return single("running", Note, "", "the worker, process %d, runs, and takes no new tasks: %s", pid, w.Constrained)
	case w.Version != "" && w.Version != r.Version:
		return single("running", Note, fmt.Sprintf("`kill -USR2 %d` has it become what its file is: tasks go on", pid), "the worker, process %d, is %s, and this program is %s", pid, w.Version, r.Version)
	}
	return ok
}

// leftovers looks for what workers that are gone have left in the data dir.
func (r *inspection) leftovers(ctx context.Context) []Finding {
	l, err := r.dataDirUse()
	if err != nil || l.inUse() {
		return nil // running tells of it; a worker cleans up by itself
	}
	var list []Finding
	if n := len(l.shims); n > 0 {
		f := newFinding("shims", Note, "`muster doctor --fix` removes them, a worker that starts does as well", "%s of shims that are gone", plural(n, "folder"))
		f.repair = r.exclusiveRepair("remove the folders of shims that are gone", func(_ context.Context, l *dataDirUse) error {
			var errs []error
			for i := range l.shims {
				errs = append(errs, l.shims[i].Remove(r.Data))
			}
			return errors.Join(errs...)
		})
		list = append(list, f)
	}
	tasks, err := os.ReadDir(filepath.Join(r.Data, "tasks"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return append(list, newFinding("task-folders", Warning, "", "the folders of tasks cannot be looked at: %s", err))
	}
	tasks = slices.DeleteFunc(tasks, func(t fs.DirEntry) bool { return t.Name() == process.PoolDir }) // of no task
	if n := len(tasks); n > 0 {
		f := newFinding("task-folders", Warning, "`muster doctor --fix` removes them, a worker that starts does as well", "%s of tasks that ended with their worker, in %s", plural(n, "folder"), filepath.Join(r.Data, "tasks"))
		f.repair = r.exclusiveRepair("remove the folders of tasks that are gone", func(context.Context, *dataDirUse) error {
			var errs []error
			for _, t := range tasks {
				errs = append(errs, os.RemoveAll(filepath.Join(r.Data, "tasks", t.Name())))
			}
			return errors.Join(errs...)
		})
		if r.hasRunningContainer(ctx) {
			f.repair, f.Fix = nil, "start the worker: it ends their containers, and removes them" // which have the folders
		}
		list = append(list, f)
	}
	return list
}

// groups looks for control groups that workers have left.
func (r *inspection) groups(context.Context) []Finding {
	l, err := r.dataDirUse()
	if err != nil {
		return nil // running tells of it
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
		f := groupFinding(own)
		if f.repair = r.exclusiveRepair("remove control groups of tasks that are gone", func(context.Context, *dataDirUse) error {
			var errs []error
			for i := range own {
				errs = append(errs, own[i].Remove())
			}
			return errors.Join(errs...)
		}); processCount(own) > 0 {
			f.repair = nil
			f.Fix = "start the worker: it ends them"
		}
		list = append(list, f)
	}
	if len(others) > 0 {
		list = append(list, newFinding("other-groups", Note, "if no worker uses them: `muster doctor --fix --data DIR` with the data dir that they are of, or `rmdir` each, such as `rmdir "+others[0].Path+"`",
			"%s of workers with other data dirs hold no process: %s", plural(len(others), "control group"), paths(others)))
	}
	return list
}

func groupFinding(own []cgroup.WorkerGroup) Finding {
	groups := 0
	for _, g := range own {
		groups += 1 + g.Groups
	}
	suffix := ""
	if n := processCount(own); n > 0 {
		suffix = fmt.Sprintf(", with %d processes in them", n)
	}
	return newFinding("groups", Warning, "`muster doctor --fix` removes them, a worker that starts does as well", "%s of a worker that is gone%s: %s", plural(groups, "control group"), suffix, paths(own))
}

func processCount(groups []cgroup.WorkerGroup) (n int) {
	for _, g := range groups {
		n += g.Processes
	}
	return n
}

func paths(groups []cgroup.WorkerGroup) string {
	var all []string
	for _, g := range groups {
		all = append(all, g.Path)
	}
	return firstNames(all)
}

// firstNames lists names, and of many the first ones.
func firstNames(names []string) string {
	const maxNames = 4
	if len(names) <= maxNames {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNames], ", "), len(names)-maxNames)
}

// exclusiveRepair makes a mend that is done as the only one who uses the data dir. Whoever is proven to
// be gone is so under the lock that a worker needs to start.
func (r *inspection) exclusiveRepair(description string, fn func(context.Context, *dataDirUse) error) *repair {
	data := r.Data
	return &repair{description: description, run: func(ctx context.Context) error {
		if _, err := os.Stat(data); errors.Is(err, fs.ErrNotExist) {
			return fn(ctx, &dataDirUse{}) // and nobody can have started on it
		}
		store, err := agent.OpenReportStore(data)
		if err != nil {
			return err
		}
		shims, err := shim.Inspect(data)
		l := dataDirUse{shims: shims}
		switch {
		case err != nil:
		case l.inUse():
			err = muster.Errorf(muster.Conflict, "something of the data dir %s lives again", data)
		default:
			err = fn(ctx, &l)
		}
		return errors.Join(err, store.Close())
	}}
}
