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

// groupSet makes and removes the control groups of attempts. In each tree they lie
// in one of the worker, which bounds all tasks together.
type groupSet struct {
	roots []taskRoot
	total TotalLimits

	everyHierarchy bool // an attempt has groups of its own in all trees

	mkdir func(path string) error // as the kernel does

	mu        sync.Mutex
	unremoved []string // those that could not be removed yet
}

// taskRoot is where a tree's groups lie.
type taskRoot struct {
	hierarchy
	parent string
	dir    string // the worker's group in parent
}

// TotalLimits bound all tasks together; 0 is no bound.
type TotalLimits struct {
	Memory muster.Size
	PIDs   int  // processes and threads
	Swap   bool // memory that is swapped out does not count
}

// Limits is what a task is held to; 0 means nothing.
type Limits struct {
	CPUs   float64 // cores
	Memory muster.Size
	PIDs   int  // processes and threads
	Swap   bool // beyond memory
}

// period is that in which a task may use its share of the processors, in µs: the
// kernel's default.
const period = 100_000

// workerSuffix is behind the name of the group into which a worker moves itself, since
// version 2 wants no processes in a group that has others in it.
const workerSuffix = ".worker"

// setup makes the worker's group, of the given name, in the trees that let it. It returns sentences
// about those that do not.
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
			notes = append(notes, fmt.Sprintf("the control group %s cannot be made: %v", p.dir, err))
			continue
		}
		g.roots = append(g.roots, p)
	}
	return g, notes
}

// ensureRoot makes a place's group with its bounds.
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
		_ = writeControl(p.dir, "memory.use_hierarchy", "1") // newer kernels know nothing else
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

// enableControllers lets the groups in dir have controllers of version 2. If there are processes in dir,
// which are this worker's, they move into a group beside name.
func (g *groupSet) enableControllers(dir string, controllers []string, name string) error {
	if pids, err := readProcs(dir); err == nil && len(pids) > 0 && name != "" && !isRootGroup(dir) {
		own := filepath.Join(dir, name+workerSuffix)
		if err := g.mkdir(own); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		for range 10 { // some may be starting others
			for _, pid := range pids {
				_ = writeControl(own, "cgroup.procs", strconv.Itoa(pid)) // gone, or seen in the next round
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
		return fmt.Errorf("%s does not pass on its controllers %s", dir, strings.Join(missing, ", "))
	}
	return nil
}

func (p *taskRoot) has(controller string) bool { return slices.Contains(p.controllers, controller) }

// limitMemory bounds a group's memory, swapped out or not; with swap, what is not swapped out.
func (p *taskRoot) limitMemory(group string, limit muster.Size, swap bool) error {
	value := strconv.FormatInt(int64(limit), 10)
	if p.unified {
		if err := writeControl(group, "memory.max", value); err != nil {
			return err
		}
		if swap {
			return ignoreNotExist(writeControl(group, "memory.swap.max", "max"))
		}
		return ignoreNotExist(writeControl(group, "memory.swap.max", "0"))
	}
	if err := writeControl(group, "memory.limit_in_bytes", value); err != nil {
		return err
	}
	if swap {
		_ = writeControl(group, "memory.memsw.limit_in_bytes", "-1") // that of an earlier life
		return nil
	}
	// A limit that is there already was for less, and stays.
	_ = writeControl(group, "memory.memsw.limit_in_bytes", value) // absent on kernels that do not account for swap
	return nil
}

// ignoreNotExist forgives that a control file does not exist.
func ignoreNotExist(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// create makes the groups of an attempt, and tells which needs they enforce.
func (g *groupSet) create(name string, limits Limits) (list []run.Cgroup, enforced Limits, err error) {
	for i := range g.roots {
		p := &g.roots[i]
		own := g.everyHierarchy || p.unified || p.has("pids") && limits.PIDs > 0 || p.has("memory") && limits.Memory > 0 || intersects(p.controllers, []string{"cpu", "cpuacct"}) && limits.CPUs > 0
		if !own && !p.has("memory") {
			continue
		}
		group := run.Cgroup{Path: p.dir, Unified: p.unified, Controllers: p.controllers, Shared: true}
		if own {
			group.Path, group.Shared = filepath.Join(p.dir, name), false
			if g.everyHierarchy && !p.unified && p.has("memory") {
				group.OOMKillsBefore = hostOOMKills() // see starve
			}
			if err = g.createGroup(p, group.Path); err == nil {
				list = append(list, group)
				err = p.applyLimits(group.Path, limits, &enforced)
			}
			if err != nil {
				g.remove(list)
				return nil, Limits{}, fmt.Errorf("the control group %s cannot be made: %w", group.Path, err)
			}
			continue
		}
		group.OOMKillsBefore = oomKills(&group)
		if group.OOMKillsBefore < 0 && !exists(p.dir) {
			if err := g.ensureRoot(p); err != nil {
				g.remove(list)
				return nil, Limits{}, fmt.Errorf("the control group %s cannot be made: %w", p.dir, err)
			}
			group.OOMKillsBefore = oomKills(&group)
		}
		list = append(list, group)
	}
	return list, enforced, nil
}

// createGroup makes a group in p. One of that name is of an earlier life, in which the attempt
// was not ended.
func (g *groupSet) createGroup(p *taskRoot, path string) error {
	err := g.mkdir(path)
	switch {
	case errors.Is(err, fs.ErrExist):
		err = killAndRemove(path)
	case errors.Is(err, fs.ErrNotExist): // somebody cleared the worker's group away
		err = g.ensureRoot(p)
	default:
		return err
	}
	if err != nil {
		return err
	}
	return g.mkdir(path)
}

// applyLimits writes the limits that a group enforces, and notes them in done.
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
		// The kernel wants at least a millisecond.
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
			// Not there: a kernel without quotas. Invalid: a group above has less.
			return err
		}
	}
	return nil
}

// remove removes groups of an attempt that has ended. Those in which something is still about to
// end, such as the thread from which it was started or Podman's monitor, are left for later.
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

// retryRemove removes those that were left for later, and waits for each that long.
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

// removeGroup removes a group with those that were made in it, and waits for the last
// process to have left it.
func removeGroup(path string, atMost time.Duration) error {
	for pause, waited := time.Millisecond, time.Duration(0); ; pause *= 2 {
		err := removeTree(path)
		if err == nil || waited >= atMost {
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
	inner, _ := os.ReadDir(path)
	removedAny := false
	for _, e := range inner {
		if e.IsDir() {
			removedAny = true
			_ = removeTree(filepath.Join(path, e.Name())) // else the group stays, too
		}
	}
	if removedAny {
		err = removeDir(path)
	}
	return err
}

// sweep clears the worker's groups of those that no attempt in keep is in. parents are
// the worker's groups of all its lives.
func sweep(parents []string, keep map[string]bool) error {
	var errs []error
	for _, parent := range parents {
		inner, err := os.ReadDir(parent)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for _, e := range inner {
			path := filepath.Join(parent, e.Name())
			if e.IsDir() && !keep[path] {
				errs = append(errs, killAndRemove(path))
			}
		}
	}
	return errors.Join(errs...)
}

// killAndRemove ends what is in a group and removes it.
func killAndRemove(path string) error {
	if err := Kill(&run.Cgroup{Path: path, Unified: isUnified(path)}); err != nil {
		return err
	}
	return removeGroup(path, removeTimeout)
}

// removeTimeout is how long a group whose processes were killed may be busy.
const removeTimeout = 2 * time.Second

// isUnified tells the version of a group: one of version 2 has events.
func isUnified(path string) bool {
	_, err := os.Stat(filepath.Join(path, "cgroup.events"))
	return err == nil
}

// isRootGroup reports whether a group of version 2 is the machine's: only that may have
// both processes and other groups with controllers.
func isRootGroup(path string) bool {
	_, err := os.Stat(filepath.Join(path, "cgroup.type"))
	return errors.Is(err, fs.ErrNotExist)
}
