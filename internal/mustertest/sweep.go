//go:build unix

package mustertest

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/muster-dev/muster/internal/agent/limit/cgroup"
)

// leaveNothing ends, after the test, what a killed worker with its data in dir leaves
// by design: its tasks, the shim that stands by them, and their control groups.
func leaveNothing(tb testing.TB, dir string) {
	tb.Helper()
	tb.Cleanup(func() {
		for until := time.Now().Add(10 * time.Second); time.Now().Before(until); time.Sleep(20 * time.Millisecond) {
			left := append(Shims(tb, dir), Tasks(tb, dir)...)
			for _, pid := range left { // or what they have just started
				_ = syscall.Kill(pid, syscall.SIGKILL) // it may just have ended
			}
			if len(left) == 0 && removeGroups(dir) == nil { // what was killed is in them until it has ended
				return
			}
		}
	})
}

// removeGroups removes the control groups of a worker that has ended.
func removeGroups(dir string) (err error) {
	for _, l := range cgroup.WorkerGroups(dir) {
		if l.Own {
			err = errors.Join(err, l.Remove())
		}
	}
	return err
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
