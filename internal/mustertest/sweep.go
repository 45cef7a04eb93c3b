//go:build unix

package mustertest

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// leaveNothing ends, after the test, what a killed worker with its data in dir leaves
// running by design: its tasks, and the shim that stands by them.
func leaveNothing(tb testing.TB, dir string) {
	tb.Helper()
	tb.Cleanup(func() {
		for _, pid := range append(Shims(tb, dir), Tasks(tb, dir)...) {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may just have ended
		}
	})
}

// Shims returns the processes that stand by the tasks of the worker with its data in
// dir.
func Shims(tb testing.TB, dir string) []int {
	tb.Helper()
	return Processes(tb, "\x00shim\x00", "\x00"+dir+"\x00")
}

// Tasks returns the processes of tasks of the worker with its data in dir.
func Tasks(tb testing.TB, dir string) []int {
	tb.Helper()
	return Processes(tb, "MUSTER_OUT="+filepath.Join(dir, "tasks")+string(filepath.Separator))
}

// Processes returns the processes that have all of these parts in their command
// line or their environment.
func Processes(tb testing.TB, parts ...string) []int {
	tb.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		tb.Fatal(err)
	}
	var pids []int
next:
	for _, dir := range dirs {
		line, _ := os.ReadFile(filepath.Join(dir, "cmdline")) // it may just have ended
		env, _ := os.ReadFile(filepath.Join(dir, "environ"))
		text := string(line) + string(env)
		for _, part := range parts {
			if !strings.Contains(text, part) {
				continue next
			}
		}
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			tb.Fatal(err)
		}
		pids = append(pids, pid)
	}
	return pids
}
