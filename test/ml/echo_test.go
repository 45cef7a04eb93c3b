//go:build unix

package ml

import (
	"testing"

	"github.com/muster-dev/muster/internal/mustertest"
)

// TestEcho needs no runtime: it holds that kinds with an input reach a worker and come back.
func TestEcho(t *testing.T) {
	w := newEnv(t, t.TempDir())
	var back map[string]any
	w.runTask("echo", map[string]any{"hello": "muster"}).requireSucceeded(&back)
	if back["hello"] != "muster" {
		t.Errorf("it returned %v", back)
	}
	if pids := mustertest.TaskPIDs(t, w.Data); len(pids) > 0 {
		t.Errorf("leftover processes: %v", pids)
	}
}
