// Package procfs reads the files of /proc that several packages of the agent need: the state, counters and environment of
// processes, and mounts. It is the only place that knows their format. Processes are read on Linux only; mounts are parsed anywhere.
package procfs

import (
	"bytes"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Stat is what the kernel reports of a process in /proc/PID/stat.
type Stat struct {
	PID, Parent, Group, Session int
	State                       byte          // of the first thread: R, S, D, T, Z, ...; see proc_pid_stat(5)
	CPU                         time.Duration // user and system time so far
	Threads                     int
	Start                       uint64 // clock ticks since boot
}

// Field returns the number after a name in a file of such lines, such as /proc/vmstat.
func Field(path, name string) (int64, bool) {
	b, err := ReadFile(path)
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

// KernelOlder reports whether a kernel, by its release such as "6.8.0-45-generic", is older than a version. It is false for an unknown one.
func KernelOlder(release string, major, minor int) bool {
	var a, b int
	_, err := fmt.Sscanf(release, "%d.%d", &a, &b)
	return err == nil && (a < major || a == major && b < minor)
}

// Mount is a line of /proc/self/mountinfo.
type Mount struct {
	Device       string // major:minor of the file system
	Root         string // the directory of the file system that is mounted
	Point        string // where it is mounted
	Type         string // such as ext4 or cgroup2
	Source       string // such as /dev/sda1
	SuperOptions string // of the file system, separated by commas
	ReadOnly     bool
}

// unescape undoes the kernel's escapes for white space, backslashes and hash signs.
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`, `\043`, "#").Replace

// Mounts parses mountinfo; see proc_pid_mountinfo(5). Lines that it cannot parse are left out.
func Mounts(mountinfo string) iter.Seq[Mount] {
	return func(yield func(Mount) bool) {
		for line := range strings.Lines(mountinfo) {
			before, after, ok := strings.Cut(strings.TrimSpace(line), " - ")
			f, g := strings.Fields(before), strings.Fields(after)
			if !ok || len(f) < 6 || len(g) < 2 {
				continue
			}
			m := Mount{
				Device: f[2], Root: unescape(f[3]), Point: unescape(f[4]), Type: g[0], Source: unescape(g[1]),
				ReadOnly: slices.Contains(strings.Split(f[5], ","), "ro"),
			}
			if len(g) > 2 {
				m.SuperOptions = g[2]
			}
			if !yield(m) {
				return
			}
		}
	}
}
