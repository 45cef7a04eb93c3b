package cgroup

import (
	"bytes"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-dev/muster/internal/agent/run"
)

// tree is one hierarchy of control groups that is mounted here.
type tree struct {
	unified     bool
	controllers []string // that are of use to us
	mount       string
	own         string // the group of this process, below mount
	old         bool   // the kernel cannot start processes in its groups
}

// useful lists the controllers that we know how to use. The last ones only count.
var useful = []string{"memory", "pids", "cpu", "cpuacct", "io"}

// mounted finds the hierarchies. root stands before all paths: "" for this
// machine, else a folder with files like its own. See proc_pid_mountinfo(5) and
// cgroups(7).
func mounted(root string) []tree {
	mounts, err := readFile(root + "/proc/self/mountinfo")
	if err != nil {
		return nil
	}
	groups, err := readFile(root + "/proc/self/cgroup")
	if err != nil {
		return nil
	}
	var found []tree
	for line := range strings.Lines(string(mounts)) {
		m, ok := parseMount(line)
		if !ok {
			continue
		}
		t := tree{unified: m.unified, controllers: m.controllers, mount: root + m.at}
		if t.unified {
			t.old = old(strings.Join(words(root+"/proc/sys/kernel/osrelease"), ""))
		}
		path, ok := ownPath(string(groups), &t)
		if !ok || !t.unified && len(t.controllers) == 0 {
			continue
		}
		t.own = filepath.Join(t.mount, below(path, m.top))
		if t.unified {
			t.controllers = words(filepath.Join(t.own, "cgroup.controllers"))
		}
		if !slices.ContainsFunc(found, func(f tree) bool { return f.unified == t.unified && overlap(f.controllers, t.controllers) }) {
			found = append(found, t)
		}
	}
	return found
}

// mount is where a hierarchy of control groups is mounted.
type mount struct {
	device      string // the same in each mount of a hierarchy
	top         string // the group that is mounted
	at          string
	unified     bool
	controllers []string // of version 1, that are of use to us
}

// parseMount reads a line of mountinfo. It reports false if that is of something else.
func parseMount(line string) (mount, bool) {
	before, after, ok := strings.Cut(strings.TrimSpace(line), " - ")
	where, what := strings.Fields(before), strings.Fields(after)
	if !ok || len(where) < 5 || len(what) < 3 || what[0] != "cgroup" && what[0] != "cgroup2" {
		return mount{}, false
	}
	m := mount{device: where[2], top: unescape(where[3]), at: unescape(where[4]), unified: what[0] == "cgroup2"}
	if m.unified {
		return m, true
	}
	for option := range strings.SplitSeq(what[2], ",") {
		if slices.Contains(useful, option) {
			m.controllers = append(m.controllers, option)
		}
	}
	return m, true
}

func overlap(a, b []string) bool {
	return slices.ContainsFunc(a, func(c string) bool { return slices.Contains(b, c) })
}

// ownPath finds the group of a tree in /proc/self/cgroup, whose lines are such as
// "4:cpu,cpuacct:/path", and "0::/path" for version 2.
func ownPath(groups string, t *tree) (string, bool) {
	for line := range strings.Lines(groups) {
		_, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		names, path, ok := strings.Cut(rest, ":")
		if !ok {
			continue
		}
		if t.unified && names == "" || !t.unified && overlap(strings.Split(names, ","), t.controllers) {
			return path, true
		}
	}
	return "", false
}

// below returns a group's path below what is mounted of its hierarchy: in a
// container that may be less than all.
func below(path, top string) string {
	if rest, ok := strings.CutPrefix(path, top); ok && (rest == "" || rest[0] == '/' || top == "/") {
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

// words reads a control file of words.
func words(path string) []string {
	b, err := readFile(path)
	if err != nil {
		return nil
	}
	return strings.Fields(string(b))
}

// number reads a control file of one number; "max" is none.
func number(path string) (int64, bool) {
	b, err := readFile(path)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(string(bytes.TrimSpace(b)), 10, 64)
	return n, err == nil
}

// field reads the number behind a name in a control file of such lines.
func field(path, name string) (int64, bool) {
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
func Enter(g *run.Cgroup) error { return put(g.Path, "tasks", "0") }

// put writes a control file.
func put(group, file, value string) error { return writeFile(filepath.Join(group, file), value) }

// processes lists those in a group.
func processes(group string) ([]int, error) {
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
