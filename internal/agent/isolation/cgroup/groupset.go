package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
)

// groupSet creates and removes the control groups of attempts. In each hierarchy they are in the worker's group, which limits all
// tasks together.
type groupSet struct {
	roots []taskRoot
	total TotalLimits

	everyHierarchy bool // an attempt has groups of its own in all hierarchies

	mkdir func(path string) error // a test simulates the kernel

	mu        sync.Mutex
	unremoved []string // groups to remove later
}

// taskRoot is the worker's group in one hierarchy.
type taskRoot struct {
	hierarchy
	parent string
	dir    string // in parent
}

// TotalLimits limit all tasks together; 0 means no limit.
type TotalLimits struct {
	Memory muster.Size
	PIDs   int  // processes and threads
	Swap   bool // swapped memory does not count
}

// Limits are those of a task; 0 means no limit.
type Limits struct {
	CPUs   float64 // cores
	Memory muster.Size
	PIDs   int  // processes and threads
	Swap   bool // beyond memory
}

// period is the interval of CPU quotas in µs: the kernel's default.
const period = 100_000

// workerSuffix ends the name of the group into which a worker moves itself: version 2 allows no processes in a group that
// has groups in it.
const workerSuffix = ".worker"

// setup creates the worker's group in each hierarchy that allows it. The notes explain why others do not.
func setup(hierarchies []hierarchy, name string, total TotalLimits, mkdir func(string) error) (*groupSet, []string) {
	g := &groupSet{total: total, mkdir: mkdir}
	var notes []string
	for _, t := range hierarchies {
		parent, controllers, err := t.findParent()
		if err != nil {
			notes = append(notes, err.Error())
			continue
		}
		t.controllers = controllers
		p := taskRoot{hierarchy: t, parent: parent, dir: filepath.Join(parent, name)}
		if err := g.ensureRoot(&p); err != nil {
			notes = append(notes, fmt.Sprintf("cannot create the control group %s: %v", p.dir, err))
			continue
		}
		g.roots = append(g.roots, p)
	}
	return g, notes
}

// ensureRoot creates the worker's group with its limits.
func (g *groupSet) ensureRoot(p *taskRoot) error {
	if p.unified {
		if err := g.enableControllers(p.parent, p.controllers, filepath.Base(p.dir)); err != nil {
			return err
		}
	}
	if err := g.mkdir(p.dir); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if p.unified {
		if err := g.enableControllers(p.dir, p.controllers, ""); err != nil {
			return err
		}
	} else if p.has("memory") {
		_ = writeControl(p.dir, "memory.use_hierarchy", "1") // newer kernels always do
	}
	if p.has("memory") && g.total.Memory > 0 {
		if err := p.limitMemory(p.dir, g.total.Memory, g.total.Swap); err != nil {
			return err
		}
	}
	if p.has("pids") && g.total.PIDs > 0 {
		return writeControl(p.dir, "pids.max", strconv.Itoa(g.total.PIDs))
	}
	return nil
}

// enableControllers enables controllers of version 2 for the groups in dir. Processes in dir, which are this worker's, move into
// a group beside name.
func (g *groupSet) enableControllers(dir string, controllers []string, name string) error {
	if pids, err := readProcs(dir); err == nil && len(pids) > 0 && name != "" && !isRootGroup(dir) {
		own := filepath.Join(dir, name+workerSuffix)
		if err := g.mkdir(own); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		for range 10 { // they may fork meanwhile
			for _, pid := range pids {
				_ = writeControl(own, "cgroup.procs", strconv.Itoa(pid)) // it has exited, or the next round finds it
			}
			if pids, err = readProcs(dir); err != nil || len(pids) == 0 {
				break
			}
		}
	}
	var missing []string
	enabled := readWords(filepath.Join(dir, "cgroup.subtree_control"))
	for _, c := range controllers {
		if slices.Contains(enabled, c) {
			continue
		}
		if err := writeControl(dir, "cgroup.subtree_control", "+"+c); err != nil && c != "io" {
			missing = append(missing, fmt.Sprintf("%s (%v)", c, err))
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("cannot enable controllers in %s: %s", dir, strings.Join(missing, ", "))
	}
	return nil
}

func (p *taskRoot) has(controller string) bool { return slices.Contains(p.controllers, controller) }

// limitMemory limits a group's memory including swap; with swap, only what is not swapped out.
func (p *taskRoot) limitMemory(group string, limit muster.Size, swap bool) error {
	value := strconv.FormatInt(int64(limit), 10)
	if p.unified {
		if err := writeControl(group, "memory.max", value); err != nil {
			return err
		}
		swapMax := "0"
		if swap {
			swapMax = "max"
		}
		return ignoreNotExist(writeControl(group, "memory.swap.max", swapMax))
	}
	if err := writeControl(group, "memory.limit_in_bytes", value); err != nil {
		return err
	}
	if swap {
		value = "-1"
	}
	// Absent on kernels that do not account for swap. An existing lower limit stays.
	_ = writeControl(group, "memory.memsw.limit_in_bytes", value)
	return nil
}

// ignoreNotExist drops an error about a missing control file.
func ignoreNotExist(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// create implements Groups.Create.
func (g *groupSet) create(name string, limits Limits) (list []run.Cgroup, enforced Limits, err error) {
	for i := range g.roots {
		p := &g.roots[i]
		own := g.everyHierarchy || p.unified || p.has("pids") && limits.PIDs > 0 || p.has("memory") && limits.Memory > 0 || intersects(p.controllers, []string{"cpu", "cpuacct"}) && limits.CPUs > 0
		if !own && !p.has("memory") {
			continue
		}
		group := run.Cgroup{Path: p.dir, Unified: p.unified, Controllers: p.controllers, Shared: !own}
		if own {
			group.Path = filepath.Join(p.dir, name)
			if g.everyHierarchy && !p.unified && p.has("memory") {
				group.OOMKillsBefore = hostOOMKills() // see inferOOM
			}
			if err = g.createGroup(p, group.Path); err == nil {
				list = append(list, group)
				err = p.applyLimits(group.Path, limits, &enforced)
			}
		} else {
			group.OOMKillsBefore = oomKills(&group)
			if group.OOMKillsBefore < 0 && !exists(p.dir) {
				err = g.ensureRoot(p)
				group.OOMKillsBefore = oomKills(&group)
			}
			list = append(list, group)
		}
		if err != nil {
			g.remove(list)
			return nil, Limits{}, fmt.Errorf("cannot create the control group %s: %w", group.Path, err)
		}
	}
	return list, enforced, nil
}

// createGroup creates a group in p. An existing one is left over from before a restart of the worker.
func (g *groupSet) createGroup(p *taskRoot, path string) error {
	err := g.mkdir(path)
	switch {
	case errors.Is(err, fs.ErrExist):
		err = killAndRemove(path)
	case errors.Is(err, fs.ErrNotExist): // the worker's group was removed
		err = g.ensureRoot(p)
	default:
		return err
	}
	if err != nil {
		return err
	}
	return g.mkdir(path)
}

// applyLimits writes the limits of a group, and adds those that it enforces to enforced.
func (p *taskRoot) applyLimits(group string, limits Limits, enforced *Limits) error {
	if p.has("memory") && limits.Memory > 0 {
		if err := p.limitMemory(group, limits.Memory, limits.Swap); err != nil {
			return err
		}
		if p.unified {
			if err := ignoreNotExist(writeControl(group, "memory.oom.group", "1")); err != nil {
				return err
			}
		}
		enforced.Memory = limits.Memory
	}
	if p.has("pids") && limits.PIDs > 0 {
		if err := writeControl(group, "pids.max", strconv.Itoa(limits.PIDs)); err != nil {
			return err
		}
		enforced.PIDs = limits.PIDs
	}
	if p.has("cpu") && limits.CPUs > 0 {
		// The kernel's minimum is a millisecond.
		quota := strconv.Itoa(max(1000, int(math.Round(limits.CPUs*period))))
		var err error
		if p.unified {
			err = writeControl(group, "cpu.max", quota+" "+strconv.Itoa(period))
		} else if err = writeControl(group, "cpu.cfs_period_us", strconv.Itoa(period)); err == nil {
			err = writeControl(group, "cpu.cfs_quota_us", quota)
		}
		switch {
		case err == nil:
			enforced.CPUs = limits.CPUs
		case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, errInvalid):
			// Missing: a kernel without quotas. Invalid: an ancestor has a lower limit.
			return err
		}
	}
	return nil
}

// remove implements Groups.Remove.
func (g *groupSet) remove(list []run.Cgroup) {
	for i := range list {
		if list[i].Shared {
			continue
		}
		if err := removeTree(list[i].Path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			g.mu.Lock()
			g.unremoved = append(g.unremoved, list[i].Path)
			g.mu.Unlock()
		}
	}
}

// retryRemove removes the groups that remove left, and waits that long for each.
func (g *groupSet) retryRemove(wait time.Duration) {
	g.mu.Lock()
	paths := g.unremoved
	g.unremoved = nil
	g.mu.Unlock()
	for _, path := range paths {
		if err := removeGroup(path, wait); err != nil {
			g.mu.Lock()
			g.unremoved = append(g.unremoved, path)
			g.mu.Unlock()
		}
	}
}

// removeGroup removes a group with the groups in it, and waits until they have no process.
func removeGroup(path string, wait time.Duration) error {
	for pause, waited := time.Millisecond, time.Duration(0); ; pause *= 2 {
		err := removeTree(path)
		if err == nil || waited >= wait {
			return err
		}
		pause = min(pause, 50*time.Millisecond)
		time.Sleep(pause)
		waited += pause
	}
}

func removeTree(path string) error {
	err := removeDir(path)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	inner, _ := subgroups(path)
	for _, dir := range inner {
		_ = removeTree(dir) // if it fails, so does the removal of path
	}
	if len(inner) > 0 {
		err = removeDir(path)
	}
	return err
}

// sweep kills and removes the groups in parents that are not in keep.
func sweep(parents []string, keep map[string]bool) error {
	var errs []error
	for _, parent := range parents {
		inner, err := subgroups(parent)
		errs = append(errs, ignoreNotExist(err))
		for _, path := range inner {
			if !keep[path] {
				errs = append(errs, killAndRemove(path))
			}
		}
	}
	return errors.Join(errs...)
}

func killAndRemove(path string) error {
	if err := Kill(&run.Cgroup{Path: path, Unified: isUnified(path)}); err != nil {
		return err
	}
	return removeGroup(path, removeTimeout)
}

// removeTimeout is how long a group whose processes were killed may stay busy.
const removeTimeout = 2 * time.Second

// isUnified reports whether a group is of version 2.
func isUnified(path string) bool { return exists(filepath.Join(path, "cgroup.events")) }

// isRootGroup reports whether a group of version 2 is the root: only that may have both processes and groups with controllers.
func isRootGroup(path string) bool {
	_, err := os.Stat(filepath.Join(path, "cgroup.type"))
	return errors.Is(err, fs.ErrNotExist)
}
