//go:build unix

package ml

import (
	"testing"

	"github.com/muster-dev/muster/internal/mustertest"
)

// TestEcho checks without a runtime that the input of a kind reaches a worker and is returned.
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
