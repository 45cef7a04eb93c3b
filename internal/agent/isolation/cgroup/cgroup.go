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
