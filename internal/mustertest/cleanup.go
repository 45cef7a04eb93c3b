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

	"github.com/muster-dev/muster/internal/agent/isolation/cgroup"
	"github.com/muster-dev/muster/internal/testkit"
)

// killLeftovers ends, after the test, what a killed worker with its data in dir leaves
// by design: its tasks, their shim, and their control groups.
func killLeftovers(tb testing.TB, dir string) {
	tb.Helper()
	tb.Cleanup(func() {
		for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
			pids := append(ShimPIDs(tb, dir), TaskPIDs(tb, dir)...)
			for _, pid := range pids { // or what they have just started
				_ = syscall.Kill(pid, syscall.SIGKILL) // it may just have ended
			}
			if len(pids) == 0 && removeCgroups(dir) == nil { // what was killed is in them until it has ended
				return
			}
		}
	})
}

// removeCgroups removes the control groups of a worker that has ended.
func removeCgroups(dir string) (err error) {
	for _, l := range cgroup.WorkerGroups(dir) {
		if l.Own {
			err = errors.Join(err, l.Remove())
		}
	}
	return err
}

// ShimPIDs returns the shims of the tasks of the worker with its data in
// dir.
func ShimPIDs(tb testing.TB, dir string) []int {
	tb.Helper()
	return ProcessesMatching(tb, "\x00shim\x00", "\x00"+dir+"\x00")
}

// TaskPIDs returns the processes of tasks of the worker with its data in dir.
func TaskPIDs(tb testing.TB, dir string) []int {
	tb.Helper()
	return ProcessesMatching(tb, "MUSTER_OUT="+filepath.Join(dir, "tasks")+string(filepath.Separator))
}

// ProcessesMatching returns the processes that have all of these parts in their command
// line or their environment.
func ProcessesMatching(tb testing.TB, parts ...string) []int {
	tb.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*")
	testkit.NoError(tb, err)
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
		testkit.NoError(tb, err)
		pids = append(pids, pid)
	}
	return pids
}
