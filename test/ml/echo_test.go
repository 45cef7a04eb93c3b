//go:build unix

package ml

import (
	"testing"

	"github.com/muster-dev/muster/internal/mustertest"
)

// TestEcho needs no runtime: it holds that kinds with an input reach a worker and come back.
func TestEcho(t *testing.T) {
	w := start(t, t.TempDir())
	var back map[string]any
	w.do("echo", map[string]any{"hello": "muster"}).succeeded(&back)
	if back["hello"] != "muster" {
		t.Errorf("it gave back %v", back)
	}
	if pids := mustertest.Tasks(t, w.Data); len(pids) > 0 {
		t.Errorf("processes are left: %v", pids)
	}
}
