package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/mustertest"
)

// withArray makes a spec an array of n tasks.
func withArray(s *muster.Spec, n int) *muster.Spec {
	s.Tasks[0].Array = &muster.Array{Ranges: []muster.Range{{First: 0, Last: int64(n) - 1, Step: 1}}}
	return s
}

// lease is the time that tasks of tests continue while their worker is disconnected: longer than a busy machine pauses.
const lease = 6 * time.Second

// withGrace sets how long tasks may continue while their worker is away.
func withGrace(s *muster.Spec, d time.Duration) *muster.Spec {
	s.Tasks[0].Disconnect = muster.Disconnect{Grace: muster.Duration(d)}
	return s
}

// numberedLines is the output of a loop over that many lines.
func numberedLines(lines int) string {
	var b strings.Builder
	for i := range lines {
		fmt.Fprintf(&b, "line %d\n", i+1)
	}
	return b.String()
}

// numberedLinesScript is a script that prints numbered lines, one in a tenth of a second, until there is a file
// at gate, and then an end. After a first attempt it does not wait.
func numberedLinesScript(releaseFile string) string {
	return fmt.Sprintf(`i=0; while i=$((i+1)); echo line $i; [ $MUSTER_ATTEMPT = 1 ] && [ ! -e %s ]; do sleep 0.1; done; echo end; `, releaseFile)
}

// touch makes an empty file, for which tasks wait, and which they may change.
func touch(t *testing.T, path string) {
	t.Helper()
	if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Chmod(path, 0o666)); err != nil { // tasks are other users than this one
		t.Fatal(err)
	}
}

// checkNumberedOutput checks that the output of a task counts up to its end.
func checkNumberedOutput(t *testing.T, c *mustertest.Cluster, id muster.TaskID) {
	t.Helper()
	out, ended := strings.CutSuffix(c.Output(id), "end\n")
	if lines := strings.Count(out, "\n"); !ended || lines == 0 || out != numberedLines(lines) {
		t.Errorf("the output of %s, %d bytes, with its end: %t, is not that of the task", id, len(out), ended)
	}
}

// awaitUpgrade waits until a process has re-executed its binary for the nth time, and that one is connected.
func awaitUpgrade(c *mustertest.Cluster, p *mustertest.Process, n int) {
	c.Await(fmt.Sprintf("upgrade %d is done", n), time.Minute, func() error {
		starts := strings.Split(p.Log(), "upgrading in place")
		if len(starts) <= n || !strings.Contains(starts[len(starts)-1], "msg=connected") {
			return fmt.Errorf("%d have begun", len(starts)-1)
		}
		return nil
	})
}

// killPIDs sends SIGKILL to processes, some of which may just have ended.
func killPIDs(t *testing.T, pids ...int) {
	t.Helper()
	for _, pid := range pids {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			t.Fatal(err)
		}
	}
}

// startCount returns how often a task that adds a line to a file of its number was
// started.
func startCount(t *testing.T, startsDir string, n int) int {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(startsDir, strconv.Itoa(n)))
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Count(b, []byte("\n"))
}

// awaitNoTasks waits until no files and processes of a worker's tasks remain.
func awaitNoTasks(t *testing.T, c *mustertest.Cluster, dir string) {
	t.Helper()
	c.Await("the processes of tasks are gone", time.Minute, func() error {
		if pids := mustertest.TaskPIDs(t, dir); len(pids) > 0 {
			return fmt.Errorf("%v are running", pids)
		}
		return nil
	})
}
