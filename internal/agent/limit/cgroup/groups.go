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

// family makes and removes the control groups of attempts. In each tree they lie
// in one of the worker, which bounds all tasks together.
type family struct {
	places []place
	all    Totals

	each bool // an attempt has groups of its own in all trees

	mkdir func(path string) error // as the kernel does

	mu   sync.Mutex
	late []string // those that could not be removed yet
}

// place is where a tree's groups lie.
type place struct {
	tree
	parent string
	dir    string // the worker's group in parent
}

// Totals bound all tasks together; 0 is no bound.
type Totals struct {
	Memory muster.Size
	PIDs   int  // processes and threads
	Swap   bool // memory that is swapped out does not count
}

// Need is what a task is held to; 0 means nothing.
type Need struct {
	CPUs   float64 // cores
	Memory muster.Size
	PIDs   int  // processes and threads
	Swap   bool // beyond memory
}

// period is that in which a task may use its share of the processors, in µs: the
// kernel's default.
const period = 100_000

// ownSuffix is behind the name of the group into which a worker moves itself, since
// version 2 wants no processes in a group that has others in it.
const ownSuffix = ".worker"

// settle makes the worker's group, of the given name, in the trees that let it. It returns sentences
// about those that do not.
func settle(trees []tree, name string, all Totals, mkdir func(string) error) (*family, []string) {
	g := &family{all: all, mkdir: mkdir}
	var notes []string
	for _, t := range trees {
		parent, controllers, err := t.home()
		if err != nil {
			notes = append(notes, err.Error())
			continue
		}
		t.controllers = controllers
		p := place{tree: t, parent: parent, dir: filepath.Join(parent, name)}
		if err := g.prepare(&p); err != nil {
			notes = append(notes, fmt.Sprintf("the control group %s cannot be made: %v", p.dir, err))
			continue
		}
		g.places = append(g.places, p)
	}
	return g, notes
}

// prepare makes a place's group with its bounds.
func (g *family) prepare(p *place) error {
	if p.unified {
		if err := g.open(p.parent, p.controllers, filepath.Base(p.dir)); err != nil {
			return err
		}
	}
	if err := g.mkdir(p.dir); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if p.unified {
		if err := g.open(p.dir, p.controllers, ""); err != nil {
			return err
		}
	} else if p.has("memory") {
		_ = put(p.dir, "memory.use_hierarchy", "1") // newer kernels know nothing else
	}
	if p.has("memory") && g.all.Memory > 0 {
		if err := p.limitMemory(p.dir, g.all.Memory, g.all.Swap); err != nil {
			return err
		}
	}
	if p.has("pids") && g.all.PIDs > 0 {
		return put(p.dir, "pids.max", strconv.Itoa(g.all.PIDs))
	}
	return nil
}

// open lets the groups in dir have controllers of version 2. If there are processes in dir,
// which are this worker's, they move into a group beside name.
func (g *family) open(dir string, controllers []string, name string) error {
	if pids, err := processes(dir); err == nil && len(pids) > 0 && name != "" && !rootGroup(dir) {
		own := filepath.Join(dir, name+ownSuffix)
		if err := g.mkdir(own); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		for range 10 { // some may be starting others
			for _, pid := range pids {
				_ = put(own, "cgroup.procs", strconv.Itoa(pid)) // gone, or seen in the next round
			}
			if pids, err = processes(dir); err != nil || len(pids) == 0 {
				break
			}
		}
	}
	var missing []string
	has := words(filepath.Join(dir, "cgroup.subtree_control"))
	for _, c := range controllers {
		if slices.Contains(has, c) {
			continue
		}
		if err := put(dir, "cgroup.subtree_control", "+"+c); err != nil && c != "io" {
			missing = append(missing, fmt.Sprintf("%s (%v)", c, err))
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("%s does not pass on its controllers %s", dir, strings.Join(missing, ", "))
	}
	return nil
}

func (p *place) has(controller string) bool { return slices.Contains(p.controllers, controller) }

// limitMemory bounds a group's memory, swapped out or not; with swap, what is not swapped out.
func (p *place) limitMemory(group string, most muster.Size, swap bool) error {
	value := strconv.FormatInt(int64(most), 10)
	if p.unified {
		if err := put(group, "memory.max", value); err != nil {
			return err
		}
		if swap {
			return ifThere(put(group, "memory.swap.max", "max"))
		}
		return ifThere(put(group, "memory.swap.max", "0"))
	}
	if err := put(group, "memory.limit_in_bytes", value); err != nil {
		return err
	}
	if swap {
		_ = put(group, "memory.memsw.limit_in_bytes", "-1") // that of an earlier life
		return nil
	}
	// A limit that is there already was for less, and stays.
	_ = put(group, "memory.memsw.limit_in_bytes", value) // absent on kernels that do not account for swap
	return nil
}

// ifThere forgives that a control file does not exist.
func ifThere(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// make makes the groups of an attempt, and tells which needs they enforce.
func (g *family) make(name string, n Need) (list []run.Cgroup, done Need, err error) {
	for i := range g.places {
		p := &g.places[i]
		own := g.each || p.unified || p.has("pids") && n.PIDs > 0 || p.has("memory") && n.Memory > 0 || overlap(p.controllers, []string{"cpu", "cpuacct"}) && n.CPUs > 0
		if !own && !p.has("memory") {
			continue
		}
		group := run.Cgroup{Path: p.dir, Unified: p.unified, Controllers: p.controllers, Shared: true}
		if own {
			group.Path, group.Shared = filepath.Join(p.dir, name), false
			if g.each && !p.unified && p.has("memory") {
				group.Before = machineKills() // see starve
			}
			if err = g.fresh(p, group.Path); err == nil {
				list = append(list, group)
				err = p.hold(group.Path, n, &done)
			}
			if err != nil {
				g.remove(list)
				return nil, Need{}, fmt.Errorf("the control group %s cannot be made: %w", group.Path, err)
			}
			continue
		}
		group.Before = oomKills(&group)
		if group.Before < 0 && !exists(p.dir) {
			if err := g.prepare(p); err != nil {
				g.remove(list)
				return nil, Need{}, fmt.Errorf("the control group %s cannot be made: %w", p.dir, err)
			}
			group.Before = oomKills(&group)
		}
		list = append(list, group)
	}
	return list, done, nil
}

// fresh makes a group in p. One of that name is of an earlier life, in which the attempt
// was not ended.
func (g *family) fresh(p *place, path string) error {
	err := g.mkdir(path)
	switch {
	case errors.Is(err, fs.ErrExist):
		err = wipe(path)
	case errors.Is(err, fs.ErrNotExist): // somebody cleared the worker's group away
		err = g.prepare(p)
	default:
		return err
	}
	if err != nil {
		return err
	}
	return g.mkdir(path)
}

// hold writes the limits that a group enforces, and notes them in done.
func (p *place) hold(group string, n Need, done *Need) error {
	if p.has("memory") && n.Memory > 0 {
		if err := p.limitMemory(group, n.Memory, n.Swap); err != nil {
			return err
		}
		if p.unified {
			if err := ifThere(put(group, "memory.oom.group", "1")); err != nil {
				return err
			}
		}
		done.Memory = n.Memory
	}
	if p.has("pids") && n.PIDs > 0 {
		if err := put(group, "pids.max", strconv.Itoa(n.PIDs)); err != nil {
			return err
		}
		done.PIDs = n.PIDs
	}
	if p.has("cpu") && n.CPUs > 0 {
		// The kernel wants at least a millisecond.
		quota := strconv.Itoa(max(1000, int(math.Round(n.CPUs*period))))
		var err error
		if p.unified {
			err = put(group, "cpu.max", quota+" "+strconv.Itoa(period))
		} else if err = put(group, "cpu.cfs_period_us", strconv.Itoa(period)); err == nil {
			err = put(group, "cpu.cfs_quota_us", quota)
		}
		switch {
		case err == nil:
			done.CPUs = n.CPUs
		case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, errInvalid):
			// Not there: a kernel without quotas. Invalid: a group above has less.
			return err
		}
	}
	return nil
}

// remove removes groups of an attempt that has ended. Those in which something is still about to
// end, such as the thread from which it was started or Podman's monitor, are left for later.
func (g *family) remove(list []run.Cgroup) {
	for i := range list {
		if list[i].Shared {
			continue
		}
		if err := removeNow(list[i].Path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			g.mu.Lock()
			g.late = append(g.late, list[i].Path)
			g.mu.Unlock()
		}
	}
}

// removeLate removes those that were left for later, and waits for each that long.
func (g *family) removeLate(wait time.Duration) {
	g.mu.Lock()
	late := g.late
	g.late = nil
	g.mu.Unlock()
	for _, path := range late {
		if err := removeGroup(path, wait); err != nil {
			g.mu.Lock()
			g.late = append(g.late, path)
			g.mu.Unlock()
		}
	}
}

// removeGroup removes a group with those that were made in it, and waits for the last
// process to have left it.
func removeGroup(path string, atMost time.Duration) error {
	for pause, waited := time.Millisecond, time.Duration(0); ; pause *= 2 {
		err := removeNow(path)
		if err == nil || waited >= atMost {
			return err
		}
		pause = min(pause, 50*time.Millisecond)
		time.Sleep(pause)
		waited += pause
	}
}

func removeNow(path string) error {
	err := removeDir(path)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	inner, _ := os.ReadDir(path)
	made := false
	for _, e := range inner {
		if e.IsDir() {
			made = true
			_ = removeNow(filepath.Join(path, e.Name())) // else the group stays, too
		}
	}
	if made {
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
				errs = append(errs, wipe(path))
			}
		}
	}
	return errors.Join(errs...)
}

// wipe ends what is in a group and removes it.
func wipe(path string) error {
	if err := Empty(&run.Cgroup{Path: path, Unified: isUnified(path)}); err != nil {
		return err
	}
	return removeGroup(path, removeWait)
}

// removeWait is how long a group whose processes were killed may be busy.
const removeWait = 2 * time.Second

// isUnified tells the version of a group: one of version 2 has events.
func isUnified(path string) bool {
	_, err := os.Stat(filepath.Join(path, "cgroup.events"))
	return err == nil
}

// rootGroup reports whether a group of version 2 is the machine's: only that may have
// both processes and other groups with controllers.
func rootGroup(path string) bool {
	_, err := os.Stat(filepath.Join(path, "cgroup.type"))
	return errors.Is(err, fs.ErrNotExist)
}
