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
	tasks *family

	seek sync.Once // for contains

	mu       sync.Mutex
	contains *family // of containers; nil for none
}

// New makes the groups that all tasks of the worker with this data dir, which is absolute, are in. Where
// it cannot it says why in the log, and attempts have fewer groups, or none.
func New(data string, all Totals, log *slog.Logger) *Groups {
	g := &Groups{data: data, log: log}
	var notes []string
	g.tasks, notes = settle(mounted(""), groupName(data), all, func(path string) error { return os.Mkdir(path, 0o755) }) //nolint:gosec // as all of them are
	if notes = slices.DeleteFunc(notes, func(note string) bool { return note == errNoControllers.Error() }); len(notes) > 0 {
		log.Info("some limits of tasks are watched, not enforced", slog.String("why", strings.Join(notes, "; ")))
	}
	g.remember()
	return g
}

// groupPrefix begins the names of workers' groups.
const groupPrefix = "muster-"

// groupName is that of a worker's groups: the same in each of its lives.
func groupName(data string) string {
	sum := sha256.Sum256([]byte(data))
	return groupPrefix + hex.EncodeToString(sum[:4])
}

// attemptName is that of an attempt's groups.
func attemptName(a muster.AttemptID) string { return a.Task.String() + "-" + strconv.Itoa(a.N) }

// Share is how many processes and threads all tasks together may have: half of
// what the machine may. 0 means that it is not known.
func Share() int { return share("") }

// share is Share; root stands before all paths.
func share(root string) int {
	least := 0
	for _, file := range []string{"/proc/sys/kernel/pid_max", "/proc/sys/kernel/threads-max"} {
		if n, ok := number(root + file); ok && (least == 0 || int(n)/2 < least) {
			least = int(n) / 2
		}
	}
	return least
}

// Make makes the groups of an attempt, and tells which needs they enforce: the others are 0 in done.
// What an earlier life left of the same attempt is ended. A failure leaves nothing.
func (g *Groups) Make(a muster.AttemptID, n Need) (list []run.Cgroup, done Need, err error) {
	return g.tasks.make(attemptName(a), n)
}

// Contain makes the groups of an attempt that runs in a container, which its engine is to make in their
// parent. There are none, and no parent, where an engine would not find them.
func (g *Groups) Contain(a muster.AttemptID, n Need) (list []run.Cgroup, parent string, err error) {
	f := g.vessels()
	if f == nil {
		return nil, "", nil
	}
	if list, _, err = f.make(attemptName(a), n); err != nil {
		return nil, "", err
	}
	return list, f.below(list), nil
}

// Remove removes groups of an attempt that has ended. Those in which something is still about to
// end, such as the thread from which it was started or Podman's monitor, are left for RemoveLate.
func (g *Groups) Remove(list []run.Cgroup) { g.tasks.remove(list) }

// RemoveLate removes what Remove had to leave, if it has ended by now.
func (g *Groups) RemoveLate() { g.tasks.removeLate(0) }

// Sweep ends what attempts of earlier lives of the worker left in groups, and removes those. What is in
// the groups of keep goes on.
func (g *Groups) Sweep(keep []run.Cgroup) error {
	kept := map[string]bool{}
	for i := range keep {
		kept[keep[i].Path] = true
	}
	return sweep(g.known(), kept)
}

// Close removes the groups that all tasks are in, unless some are in them still: those that
// are about to end have two seconds each. It is for a worker that leaves nothing running.
func (g *Groups) Close() {
	g.tasks.removeLate(removeWait)
	for _, path := range g.known() {
		_ = os.Remove(path) // the next life finds it
	}
}

// remember adds this life's groups to the record of those of all lives: another life may have been
// started in another place.
func (g *Groups) remember() {
	known := g.known()
	if err := os.WriteFile(record(g.data), []byte(strings.Join(known, "\n")+"\n"), 0o600); err != nil {
		g.log.Warn("control groups may stay behind if the worker is killed", slog.Any("error", err))
	}
}

// record is the file, in the data dir, that names the groups that all lives of the worker made.
func record(data string) string { return filepath.Join(data, "cgroups") }

// recorded lists those of the record that are there.
func recorded(data string) []string {
	var list []string
	for _, path := range words(record(data)) {
		if filepath.Base(path) == groupName(data) && exists(path) {
			list = append(list, path)
		}
	}
	return list
}

// known lists the groups in which those of attempts may be, of any life.
func (g *Groups) known() []string {
	list := recorded(g.data)
	places := g.tasks.places
	g.mu.Lock()
	if g.contains != nil {
		places = slices.Concat(places, g.contains.places)
	}
	g.mu.Unlock()
	for i := range places {
		if dir := places[i].dir; !slices.Contains(list, dir) {
			list = append(list, dir)
		}
	}
	return list
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
