package cgroup

import (
	"bytes"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-dev/muster/internal/agent/run"
)

// hierarchy is one hierarchy of control groups that is mounted here.
type hierarchy struct {
	unified      bool
	controllers  []string // that are of use to us
	mount        string
	self         string // the group of this process, below mount
	kernelTooOld bool   // the kernel cannot start processes in its groups
}

// supportedControllers lists the controllers that we know how to use. The last ones only count.
var supportedControllers = []string{"memory", "pids", "cpu", "cpuacct", "io"}

// findHierarchies finds the hierarchies. root stands before all paths: "" for this
// machine, else a folder with files like its own. See proc_pid_mountinfo(5) and
// cgroups(7).
func findHierarchies(root string) []hierarchy {
	mounts, err := readFile(root + "/proc/self/mountinfo")
	if err != nil {
		return nil
	}
	groups, err := readFile(root + "/proc/self/cgroup")
	if err != nil {
		return nil
	}
	var found []hierarchy
	for line := range strings.Lines(string(mounts)) {
		m, ok := parseMount(line)
		if !ok {
			continue
		}
		t := hierarchy{unified: m.unified, controllers: m.controllers, mount: root + m.path}
		if t.unified {
			t.kernelTooOld = tooOld(strings.Join(readWords(root+"/proc/sys/kernel/osrelease"), ""))
		}
		path, ok := ownPath(string(groups), &t)
		if !ok || !t.unified && len(t.controllers) == 0 {
			continue
		}
		t.self = filepath.Join(t.mount, relativeTo(path, m.root))
		if t.unified {
			t.controllers = readWords(filepath.Join(t.self, "cgroup.controllers"))
		}
		if !slices.ContainsFunc(found, func(f hierarchy) bool { return f.unified == t.unified && intersects(f.controllers, t.controllers) }) {
			found = append(found, t)
		}
	}
	return found
}

// mount is where a hierarchy of control groups is mounted.
type mount struct {
	device      string // the same in each mount of a hierarchy
	root        string // the group that is mounted
	path        string
	unified     bool
	controllers []string // of version 1, that are of use to us
}

// parseMount reads a line of mountinfo. It reports false if that is of something else.
func parseMount(line string) (mount, bool) {
	before, after, ok := strings.Cut(strings.TrimSpace(line), " - ")
	mountFields, fsFields := strings.Fields(before), strings.Fields(after)
	if !ok || len(mountFields) < 5 || len(fsFields) < 3 || fsFields[0] != "cgroup" && fsFields[0] != "cgroup2" {
		return mount{}, false
	}
	m := mount{device: mountFields[2], root: unescape(mountFields[3]), path: unescape(mountFields[4]), unified: fsFields[0] == "cgroup2"}
	if m.unified {
		return m, true
	}
	for option := range strings.SplitSeq(fsFields[2], ",") {
		if slices.Contains(supportedControllers, option) {
			m.controllers = append(m.controllers, option)
		}
	}
	return m, true
}

func intersects(a, b []string) bool {
	return slices.ContainsFunc(a, func(c string) bool { return slices.Contains(b, c) })
}

// ownPath finds the group of a tree in /proc/self/cgroup, whose lines are such as
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

// relativeTo returns a group's path below what is mounted of its hierarchy: in a
// container that may be less than all.
func relativeTo(path, root string) string {
	if rest, ok := strings.CutPrefix(path, root); ok && (rest == "" || rest[0] == '/' || root == "/") {
		return rest
	}
	return "/"
}

// unescape undoes the octal numbers of mountinfo.
func unescape(s string) string {
	for i := 0; i+3 < len(s); i++ {
		if s[i] == '\\' {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				s = s[:i] + string(rune(n)) + s[i+4:]
			}
		}
	}
	return s
}

// readWords reads a control file of words.
func readWords(path string) []string {
	b, err := readFile(path)
	if err != nil {
		return nil
	}
	return strings.Fields(string(b))
}

// readInt reads a control file of one number; "max" is none.
func readInt(path string) (int64, bool) {
	b, err := readFile(path)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(string(bytes.TrimSpace(b)), 10, 64)
	return n, err == nil
}

// readField reads the number behind a name in a control file of such lines.
func readField(path, name string) (int64, bool) {
	b, err := readFile(path)
	if err != nil {
		return 0, false
	}
	for line := range bytes.Lines(b) {
		if value, ok := bytes.CutPrefix(line, []byte(name)); ok && len(value) > 0 && value[0] == ' ' {
			n, err := strconv.ParseInt(string(bytes.TrimSpace(value)), 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}

// Enter puts the calling thread into a group of version 1, and with it all that it starts from
// then on. In version 2 a process has to be cloned into its group.
func Enter(g *run.Cgroup) error { return writeControl(g.Path, "tasks", "0") }

// writeControl writes a control file.
func writeControl(group, file, value string) error {
	return writeFile(filepath.Join(group, file), value)
}

// readProcs lists those in a group.
func readProcs(group string) ([]int, error) {
	b, err := readFile(filepath.Join(group, "cgroup.procs"))
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
