package cgroup

import (
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/procfs"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/atomicfile"
)

// Groups are the control groups of one worker. Its methods are safe for concurrent use.
type Groups struct {
	data  string
	log   *slog.Logger
	tasks *groupSet

	containersOnce sync.Once // for containerGroups

	mu         sync.Mutex
	containers *groupSet // nil if containers can have none
}

// New creates the groups that contain all tasks of the worker with this data dir, which is absolute. If that fails it logs why,
// and attempts have fewer groups, or none.
func New(data string, total TotalLimits, log *slog.Logger) *Groups {
	g := &Groups{data: data, log: log}
	var notes []string
	g.tasks, notes = setup(findHierarchies(""), groupName(data), total, func(path string) error { return os.Mkdir(path, 0o755) }) //nolint:gosec // like other groups
	if notes = slices.DeleteFunc(notes, func(note string) bool { return note == errNoControllers.Error() }); len(notes) > 0 {
		log.Info("some limits of tasks are watched, not enforced", slog.String("why", strings.Join(notes, "; ")))
	}
	g.saveRecord()
	return g
}

// groupPrefix begins the names of workers' groups.
const groupPrefix = "muster-"

// groupName is the name of a worker's groups. It is the same after a restart.
func groupName(data string) string {
	sum := sha256.Sum256([]byte(data))
	return groupPrefix + hex.EncodeToString(sum[:4])
}

func attemptGroupName(a muster.AttemptID) string { return a.Task.String() + "-" + strconv.Itoa(a.N) }

// MaxPIDs is how many processes and threads all tasks together may have: half of the machine's limit. 0 means that it is unknown.
func MaxPIDs() int { return maxPIDs("") }

// maxPIDs is MaxPIDs of the machine whose files are below root.
func maxPIDs(root string) int {
	least := 0
	for _, file := range []string{"/proc/sys/kernel/pid_max", "/proc/sys/kernel/threads-max"} {
		if n, ok := readInt(root + file); ok && (least == 0 || int(n)/2 < least) {
			least = int(n) / 2
		}
	}
	return least
}

// Create creates the groups of an attempt. The limits that they do not enforce are 0 in enforced. Processes of the
// same attempt from before a restart of the worker are killed. A failure leaves no group.
func (g *Groups) Create(a muster.AttemptID, limits Limits) (list []run.Cgroup, enforced Limits, err error) {
	return g.tasks.create(attemptGroupName(a), limits)
}

// CreateForContainer creates the groups of an attempt that runs in a container, whose engine is to create its groups in parent.
// It returns no groups and no parent where an engine would not find them.
func (g *Groups) CreateForContainer(a muster.AttemptID, limits Limits) (list []run.Cgroup, parent string, err error) {
	f := g.containerGroups()
	if f == nil {
		return nil, "", nil
	}
	if list, _, err = f.create(attemptGroupName(a), limits); err != nil {
		return nil, "", err
	}
	return list, f.containerPath(list), nil
}

// Remove removes the groups of an attempt that has ended. Groups with processes that are about to end, such as the thread that
// started the attempt or Podman's monitor, are left for RetryRemove.
func (g *Groups) Remove(list []run.Cgroup) { g.tasks.remove(list) }

// RetryRemove removes the groups that Remove left and that are empty now.
func (g *Groups) RetryRemove() { g.tasks.retryRemove(0) }

// Sweep kills the processes in groups from before a restart of the worker and removes these groups, except those in keep.
func (g *Groups) Sweep(keep []run.Cgroup) error {
	kept := map[string]bool{}
	for i := range keep {
		kept[keep[i].Path] = true
	}
	return sweep(g.knownGroups(), kept)
}

// Close removes the groups that contain all tasks, unless they have processes; it waits up to two seconds for each group that
// Remove left. It is for a worker that leaves nothing running.
func (g *Groups) Close() {
	g.tasks.retryRemove(removeTimeout)
	for _, path := range g.knownGroups() {
		_ = os.Remove(path) // left for the next start
	}
}

// saveRecord adds the groups of this process to the record: after a restart the worker may run in another group.
func (g *Groups) saveRecord() {
	if err := atomicfile.Write(recordPath(g.data), []byte(strings.Join(g.knownGroups(), "\n")+"\n"), 0o600); err != nil {
		g.log.Warn("cannot record control groups, they may be left behind if the worker is killed", slog.Any("error", err))
	}
}

// recordPath is the file, in the data dir, with the names of all groups that the worker created since the first start.
func recordPath(data string) string { return filepath.Join(data, "cgroups") }

// recordedGroups lists the recorded groups that exist.
func recordedGroups(data string) []string {
	var list []string
	for _, path := range readWords(recordPath(data)) {
		if filepath.Base(path) == groupName(data) && exists(path) {
			list = append(list, path)
		}
	}
	return list
}

// knownGroups lists the groups that may contain groups of attempts, including those from before a restart.
func (g *Groups) knownGroups() []string {
	list := recordedGroups(g.data)
	roots := g.tasks.roots
	g.mu.Lock()
	if g.containers != nil {
		roots = slices.Concat(roots, g.containers.roots)
	}
	g.mu.Unlock()
	for i := range roots {
		if dir := roots[i].dir; !slices.Contains(list, dir) {
			list = append(list, dir)
		}
	}
	return list
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// Containers have groups in a tree of their own: an engine puts a container into one path in all hierarchies, and creates missing
// groups. So an attempt in a container has a group in each hierarchy, even if it has no limits there, all with the same path.

// containerGroups returns the groups of containers, nil if there can be none. They are created at the first call: most
// machines have no engine.
func (g *Groups) containerGroups() *groupSet {
	g.containersOnce.Do(func() {
		f := g.newContainerGroups(rootHierarchies(""), seesRootCgroup())
		g.mu.Lock()
		g.containers = f
		g.mu.Unlock()
		g.saveRecord()
	})
	return g.containers
}

// newContainerGroups creates the groups of containers. It returns nil if an engine would find another group at the same
// path, or if the worker may not create them.
func (g *Groups) newContainerGroups(hierarchies []hierarchy, sameRoot bool) *groupSet {
	switch {
	case !sameRoot:
		return nil
	case len(g.tasks.roots) == 1 && g.tasks.roots[0].unified:
		return g.tasks // one hierarchy has it all
	}
	f := &groupSet{total: g.tasks.total, mkdir: g.tasks.mkdir, everyHierarchy: true}
	for _, t := range hierarchies {
		p := taskRoot{hierarchy: t, parent: t.mount, dir: filepath.Join(t.mount, groupName(g.data))}
		if checkWritable(t.mount, "cgroup.procs") != nil || f.ensureRoot(&p) != nil {
			for i := range f.roots {
				_ = os.Remove(f.roots[i].dir) // those that tasks use are not empty, or are created again
			}
			return nil
		}
		f.roots = append(f.roots, p)
	}
	return f
}

// containerPath is the path of an attempt's groups below their mounts; "" without groups.
func (g *groupSet) containerPath(list []run.Cgroup) string {
	if len(list) == 0 {
		return ""
	}
	return strings.TrimPrefix(list[0].Path, g.roots[0].mount)
}

// rootHierarchies returns every hierarchy, with its root as the parent of groups; none if one of them is visible in part only.
func rootHierarchies(root string) []hierarchy {
	mounts, err := procfs.ReadFile(root + "/proc/self/mountinfo")
	if err != nil {
		return nil
	}
	var found []hierarchy
	seen, partial := map[string]bool{}, map[string]bool{}
	for m := range procfs.Mounts(string(mounts)) {
		t, ok := newHierarchy(root, &m)
		if !ok || seen[m.Device] {
			continue
		}
		if m.Root != "/" {
			partial[m.Device] = true
			continue
		}
		seen[m.Device] = true
		t.self = t.mount
		found = append(found, t)
	}
	for device := range partial {
		if !seen[device] {
			return nil
		}
	}
	return found
}

// seesRootCgroup reports whether this process sees control groups from their root, and not from the root of a container.
func seesRootCgroup() bool {
	// The first namespace has this number on all machines (PROC_CGROUP_INIT_INO).
	name, err := os.Readlink("/proc/self/ns/cgroup")
	return err == nil && name == "cgroup:[4026531835]"
}
