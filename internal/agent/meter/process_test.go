package meter

import (
	"testing"

	"github.com/muster-dev/muster/internal/agent/procfs"
)

// TestRemoteTaskHasNoProcesses tests a task whose container engine is on another machine.
func TestRemoteTaskHasNoProcesses(t *testing.T) {
	table := newProcessTable([]process{{Stat: procfs.Stat{PID: 1}}, {Stat: procfs.Stat{PID: 2}}, {Stat: procfs.Stat{PID: 30, Parent: 2}}})
	if list := table.tree(0, 0); list != nil {
		t.Errorf("it has %+v", list)
	}
}
