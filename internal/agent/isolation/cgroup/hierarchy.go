package cgroup

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-dev/muster/internal/agent/procfs"
	"github.com/muster-dev/muster/internal/agent/run"
)

// hierarchy is a mounted hierarchy of control groups.
type hierarchy struct {
	unified      bool     // of version 2
	controllers  []string // those in supportedControllers
	mount        string
	self         string // the group of this process, below mount
	kernelTooOld bool   // the kernel cannot start processes in its groups
}

// supportedControllers lists the controllers that this package uses. The last two only count.
var supportedControllers = []string{"memory", "pids", "cpu", "cpuacct", "io"}

// findHierarchies returns the mounted hierarchies. root is a prefix of all paths: "" for this machine, or a directory with
// files like its own. See cgroups(7).
func findHierarchies(root string) []hierarchy {
	mounts, err := procfs.ReadFile(root + "/proc/self/mountinfo")
	if err != nil {
		return nil
	}
	groups, err := procfs.ReadFile(root + "/proc/self/cgroup")
	if err != nil {
		return nil
	}
	var found []hierarchy
	for m := range procfs.Mounts(string(mounts)) {
		t, ok := newHierarchy(root, &m)
		if !ok {
			continue
		}
		path, ok := ownPath(string(groups), &t)
		if !ok || !t.unified && len(t.controllers) == 0 {
			continue
		}
		t.self = filepath.Join(t.mount, relativeTo(path, m.Root))
		if t.unified {
			t.kernelTooOld = procfs.KernelOlder(strings.Join(readWords(root+"/proc/sys/kernel/osrelease"), ""), 5, 7)
			t.controllers = readWords(filepath.Join(t.self, "cgroup.controllers"))
		}
		if !slices.ContainsFunc(found, func(f hierarchy) bool { return f.unified == t.unified && intersects(f.controllers, t.controllers) }) {
			found = append(found, t)
		}
	}
	return found
}

// newHierarchy returns the hierarchy of a mount, with the controllers of version 1. It reports false if m is something else.
func newHierarchy(root string, m *procfs.Mount) (hierarchy, bool) {
	t := hierarchy{unified: m.Type == "cgroup2", mount: root + m.Point}
	if m.Type == "cgroup" {
		for option := range strings.SplitSeq(m.SuperOptions, ",") {
			if slices.Contains(supportedControllers, option) {
				t.controllers = append(t.controllers, option)
			}
		}
	}
	return t, t.unified || m.Type == "cgroup"
}

func intersects(a, b []string) bool {
	return slices.ContainsFunc(a, func(c string) bool { return slices.Contains(b, c) })
}

// ownPath returns this process's group in a hierarchy. The lines of groups, from /proc/self/cgroup, are such as
// "4:cpu,cpuacct:/path", and "0::/path" for version 2.
func ownPath(groups string, t *hierarchy) (string, bool) {
	for line := range strings.Lines(groups) {
		_, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		names, path, ok := strings.Cut(rest, ":")
		if !ok {
			continue
		}
		if t.unified && names == "" || !t.unified && intersects(strings.Split(names, ","), t.controllers) {
			return path, true
		}
	}
	return "", false
}

// relativeTo returns a group's path below the mounted part of its hierarchy: in a container that may be less than all.
func relativeTo(path, root string) string {
	if rest, ok := strings.CutPrefix(path, root); ok && (rest == "" || rest[0] == '/' || root == "/") {
		return rest
	}
	return "/"
}

func subgroups(path string) ([]string, error) {
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	var list []string
	for _, e := range entries {
		if e.IsDir() {
			list = append(list, filepath.Join(path, e.Name()))
		}
	}
	return list, nil
}

func readWords(path string) []string {
	b, err := procfs.ReadFile(path)
	if err != nil {
		return nil
	}
	return strings.Fields(string(b))
}

// readInt reads a control file with one number. It reports false for "max".
func readInt(path string) (int64, bool) {
	b, err := procfs.ReadFile(path)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(string(bytes.TrimSpace(b)), 10, 64)
	return n, err == nil
}

// Enter moves the calling thread into a group of version 1, with all that it starts afterwards. With version 2 a process has to be
// cloned into its group.
func Enter(g *run.Cgroup) error { return writeControl(g.Path, "tasks", "0") }

func writeControl(group, file, value string) error {
	return writeFile(filepath.Join(group, file), value)
}

func readProcs(group string) ([]int, error) {
	b, err := procfs.ReadFile(filepath.Join(group, "cgroup.procs"))
	if err != nil {
		return nil, err
	}
	var pids []int
	for w := range strings.FieldsSeq(string(b)) {
		if pid, err := strconv.Atoi(w); err == nil && pid > 0 {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// findParent returns the group in which the worker's group can be created, and its usable controllers. It changes nothing.
// The error is for the worker's owner.
func (t *hierarchy) findParent() (dir string, controllers []string, err error) {
	if !t.unified {
		if err := checkWritable(t.self, "cgroup.procs"); err != nil {
			return "", nil, fmt.Errorf("tasks have no control groups for %s: %w", strings.Join(t.controllers, ", "), err)
		}
		return t.self, t.controllers, nil
	}
	if isRootGroup(t.self) && !intersects(t.controllers, supportedControllers) {
		return "", nil, errNoControllers
	}
	if t.kernelTooOld {
		return "", nil, errors.New("tasks have no control groups: version 2 of them needs Linux 5.7 or newer")
	}
	own := t.self
	if strings.HasSuffix(own, workerSuffix) {
		own = filepath.Dir(own) // this worker moved there before it was restarted
	}
	if root := t.managerRoot(own); root != "" {
		if controllers, err = t.usableControllers(root, false); err == nil {
			return root, controllers, nil
		}
	}
	if above := filepath.Dir(own); own != t.mount && !delegated(own) && delegated(above) && !limited(own) {
		// The service manager starts the worker in a subgroup of the group that it delegated (DelegateSubgroup= of systemd).
		// Every start has to use the delegated group: with groups below the subgroup, that could get no process again.
		if controllers, err = t.usableControllers(above, false); err == nil {
			return above, controllers, nil
		}
	}
	var first error
	for dir = own; ; dir = filepath.Dir(dir) {
		controllers, err = t.usableControllers(dir, dir == own)
		if err == nil {
			return dir, controllers, nil
		}
		if first == nil {
			first = err
		}
		if dir == t.mount || limited(dir) {
			// Above it the worker's own limits would not apply to its tasks.
			return "", nil, fmt.Errorf("tasks have no control groups: %w", first)
		}
	}
}

// managerRoot returns the root group of the service manager that started the worker as a service of its own: the group of the user's
// manager, user@UID.service, or that of the machine. It returns "" if there is none, or if a limit would be lost.
//
// With the groups of tasks in its unit a worker could not be restarted while they run: systemd starts a service in the unit's group, and
// the kernel refuses a process in a group whose subgroups have controllers.
func (t *hierarchy) managerRoot(own string) string {
	unit := own
	if !strings.HasSuffix(unit, serviceSuffix) {
		unit = filepath.Dir(own) // the worker is in a subgroup of its unit
	}
	if !strings.HasSuffix(unit, serviceSuffix) || !strings.HasPrefix(unit, t.mount+"/") || limited(own) {
		return ""
	}
	if pids, err := readProcs(own); !delegated(unit) && (err != nil || !runOurBinary(pids)) {
		return "" // the service is another program that started the worker
	}
	for dir := unit; ; {
		if limited(dir) {
			return ""
		}
		if dir = filepath.Dir(dir); dir == t.mount || strings.HasSuffix(dir, serviceSuffix) {
			return dir
		}
	}
}

// serviceSuffix ends the names of the groups of systemd's services.
const serviceSuffix = ".service"

// errNoControllers means that version 2 is mounted beside version 1, which has the controllers.
var errNoControllers = errors.New("version 2 of control groups has no controllers here")

// usableControllers returns the controllers for groups in dir, or an error if the worker may not create groups there.
func (t *hierarchy) usableControllers(dir string, own bool) ([]string, error) {
	for _, file := range []string{"cgroup.procs", "cgroup.subtree_control"} {
		if err := checkWritable(dir, file); err != nil {
			return nil, fmt.Errorf("%w: run the worker as a service with Delegate=yes, or in systemd-run --user --scope -p Delegate=yes", err)
		}
	}
	var controllers []string
	for _, c := range readWords(filepath.Join(dir, "cgroup.controllers")) {
		if slices.Contains(supportedControllers, c) {
			controllers = append(controllers, c)
		}
	}
	if len(controllers) == 0 {
		return nil, fmt.Errorf("%s has no controllers", dir)
	}
	if isRootGroup(dir) {
		return controllers, nil
	}
	pids, err := readProcs(dir)
	if err != nil {
		return nil, err
	}
	mayMove := own && (dir == t.mount || delegated(dir) || runOurBinary(pids))
	if len(pids) > 0 && !mayMove {
		return nil, fmt.Errorf("other processes are in the worker's control group %s", dir)
	}
	return controllers, nil
}

// limited reports whether a group of version 2 has a limit of memory or processor time.
func limited(dir string) bool {
	for _, file := range []string{"memory.max", "cpu.max"} {
		if w := readWords(filepath.Join(dir, file)); len(w) > 0 && w[0] != "max" {
			return true
		}
	}
	return false
}

// checkWritable opens a control file for writing, and returns the error.
func checkWritable(dir, file string) error {
	f, err := os.OpenFile(filepath.Join(dir, file), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	return f.Close()
}

// runOurBinary reports whether all processes run the worker's program: the worker and its shims.
func runOurBinary(pids []int) bool {
	self, err := os.Stat("/proc/self/exe")
	if err != nil {
		return false
	}
	return !slices.ContainsFunc(pids, func(pid int) bool {
		exe, err := os.Stat("/proc/" + strconv.Itoa(pid) + "/exe")
		return err != nil || !os.SameFile(self, exe)
	})
}
