package e2e

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/mustertest"
)

// array makes a spec an array of n tasks.
func array(s *muster.Spec, n int) *muster.Spec {
	s.Tasks[0].Array = &muster.Array{Ranges: []muster.Range{{First: 0, Last: int64(n) - 1, Step: 1}}}
	return s
}

// grace sets how long tasks may go on while their worker is away.
func grace(s *muster.Spec, d time.Duration) *muster.Spec {
	s.Tasks[0].Disconnect = muster.Disconnect{Grace: muster.Duration(d)}
	return s
}

// numbered is the output of a loop over that many lines.
func numbered(lines int) string {
	var b strings.Builder
	for i := range lines {
		fmt.Fprintf(&b, "line %d\n", i+1)
	}
	return b.String()
}

// starts returns how often a task that adds a line to a file of its number was
// started.
func starts(t *testing.T, marks string, n int) int {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(marks, strconv.Itoa(n)))
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Count(b, []byte("\n"))
}

// noneLeft waits until nothing of a worker's tasks is left.
func noneLeft(t *testing.T, c *mustertest.Cluster, dir string) {
	t.Helper()
	c.Await("the processes of tasks are gone", 30*time.Second, func() error {
		if pids := mustertest.Tasks(t, dir); len(pids) > 0 {
			return fmt.Errorf("%v live", pids)
		}
		return nil
	})
}
