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
)

// Groups are the control groups of one worker. All methods may be called at any time.
type Groups struct {
	data  string
	log   *slog.Logger
	tasks *groupSet

	containersOnce sync.Once // for contains

	mu         sync.Mutex
	containers *groupSet // of containers; nil for none
}

// New makes the groups that all tasks of the worker with this data dir, which is absolute, are in. Where
// it cannot it says why in the log, and attempts have fewer groups, or none.
func New(data string, total TotalLimits, log *slog.Logger) *Groups {
	g := &Groups{data: data, log: log}
	var notes []string
	g.tasks, notes = setup(findHierarchies(""), groupName(data), total, func(path string) error { return os.Mkdir(path, 0o755) }) //nolint:gosec // as all of them are
	if notes = slices.DeleteFunc(notes, func(note string) bool { return note == errNoControllers.Error() }); len(notes) > 0 {
		log.Info("some limits of tasks are watched, not enforced", slog.String("why", strings.Join(notes, "; ")))
	}
	g.saveRecord()
	return g
}

// groupPrefix begins the names of workers' groups.
const groupPrefix = "muster-"

// groupName is that of a worker's groups: the same in each of its lives.
func groupName(data string) string {
	sum := sha256.Sum256([]byte(data))
	return groupPrefix + hex.EncodeToString(sum[:4])
}

// attemptGroupName is that of an attempt's groups.
func attemptGroupName(a muster.AttemptID) string { return a.Task.String() + "-" + strconv.Itoa(a.N) }

// MaxPIDs is how many processes and threads all tasks together may have: half of
// what the machine may. 0 means that it is not known.
func MaxPIDs() int { return maxPIDs("") }

// maxPIDs is Share; root stands before all paths.
func maxPIDs(root string) int {
	least := 0
	for _, file := range []string{"/proc/sys/kernel/pid_max", "/proc/sys/kernel/threads-max"} {
		if n, ok := readInt(root + file); ok && (least == 0 || int(n)/2 < least) {
			least = int(n) / 2
		}
	}
	return least
}

// Create makes the groups of an attempt, and tells which needs they enforce: the others are 0 in done.
// What an earlier life left of the same attempt is ended. A failure leaves nothing.
func (g *Groups) Create(a muster.AttemptID, limits Limits) (list []run.Cgroup, enforced Limits, err error) {
	return g.tasks.create(attemptGroupName(a), limits)
}

// CreateForContainer makes the groups of an attempt that runs in a container, which its engine is to make in their
// parent. There are none, and no parent, where an engine would not find them.
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

// Remove removes groups of an attempt that has ended. Those in which something is still about to
// end, such as the thread from which it was started or Podman's monitor, are left for RetryRemove.
func (g *Groups) Remove(list []run.Cgroup) { g.tasks.remove(list) }

// RetryRemove removes what Remove had to leave, if it has ended by now.
func (g *Groups) RetryRemove() { g.tasks.retryRemove(0) }

// Sweep ends what attempts of earlier lives of the worker left in groups, and removes those. What is in
// the groups of keep goes on.
func (g *Groups) Sweep(keep []run.Cgroup) error {
	kept := map[string]bool{}
	for i := range keep {
		kept[keep[i].Path] = true
	}
	return sweep(g.knownGroups(), kept)
}

// Close removes the groups that all tasks are in, unless some are in them still: those that
// are about to end have two seconds each. It is for a worker that leaves nothing running.
func (g *Groups) Close() {
	g.tasks.retryRemove(removeTimeout)
	for _, path := range g.knownGroups() {
		_ = os.Remove(path) // the next life finds it
	}
}

// saveRecord adds this life's groups to the record of those of all lives: another life may have been
// started in another place.
func (g *Groups) saveRecord() {
	known := g.knownGroups()
	if err := os.WriteFile(recordPath(g.data), []byte(strings.Join(known, "\n")+"\n"), 0o600); err != nil {
		g.log.Warn("control groups may stay behind if the worker is killed", slog.Any("error", err))
	}
}

// recordPath is the file, in the data dir, that names the groups that all lives of the worker made.
func recordPath(data string) string { return filepath.Join(data, "cgroups") }

// recordedGroups lists those of the record that are there.
func recordedGroups(data string) []string {
	var list []string
	for _, path := range readWords(recordPath(data)) {
		if filepath.Base(path) == groupName(data) && exists(path) {
			list = append(list, path)
		}
	}
	return list
}

// knownGroups lists the groups in which those of attempts may be, of any life.
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
