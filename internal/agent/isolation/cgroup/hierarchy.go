package cgroup

import (
	"bytes"
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

// subgroups lists the paths of the groups in a group.
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

// readWords reads a control file of words.
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

// readProcs lists the processes in a group.
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
