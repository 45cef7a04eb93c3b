package dtf

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/dialect/bridge"
)

// Heartbeats do not mention a cancelled task, because the coordinator would consider it running.
func TestHeartbeatsDoNotSpeakOfCancelledTasks(t *testing.T) {
	b := &Bridge{progress: map[string]float64{}, cancelled: map[string]string{"b": "user_request"}, state: bridgeState{WorkerID: "w1"}}
	half := 0.5
	for _, id := range []string{"a", "b"} {
		running := []muster.Task{{State: muster.Running, Progress: &half}}
		if err := (*reporter)(b).Progress(t.Context(), bridge.Job{ID: id}, muster.Job{}, running); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		if m := b.nextHeartbeat(); m.Task == nil || m.Task.TaskID != "a" || m.Task.Progress != 50 || *m.Health.Metrics.CurrentTask != "a" {
			t.Errorf("a heartbeat speaks of %+v", m.Task)
		}
	}
	delete(b.progress, "a")
	if m := b.nextHeartbeat(); m.Task != nil {
		t.Errorf("a heartbeat speaks of %+v", m.Task)
	}
}

// The notice of a heartbeat that could not be sent is in the next one.
func TestNoticesAreNotLost(t *testing.T) {
	b := &Bridge{cancelNotices: []taskNotice{{TaskID: "a"}, {TaskID: "b"}}}
	m := b.nextHeartbeat()
	b.requeueNotice(m)
	b.requeueNotice(&message{Type: typeHeartbeat})
	for _, want := range []string{"a", "b"} {
		if m := b.nextHeartbeat(); m.Cancelled == nil || m.Cancelled.TaskID != want {
			t.Errorf("a heartbeat says %+v, not that %s is cancelled", m.Cancelled, want)
		}
	}
	if m := b.nextHeartbeat(); m.Cancelled != nil || m.Health == nil {
		t.Errorf("a heartbeat says %+v again", m.Cancelled)
	}
}

// Intervals have a minimum.
func TestIntervalsAreBounded(t *testing.T) {
	b, err := NewBridge(t.Context(), BridgeConfig{
		Coordinators: []string{"http://127.0.0.1:1/"}, Dir: t.TempDir(), HighAvailability: true, Heartbeat: 1, HealthCheck: 1, ReconnectInterval: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	if c := b.cfg; c.Heartbeat != minPause || c.HealthCheck != minPause || c.ReconnectInterval != minPause {
		t.Errorf("%+v", c)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

// A test that waits for its files can be cancelled; an offer that is not known cannot.
func TestWaitingTestsAreOpen(t *testing.T) {
	b, err := NewBridge(t.Context(), BridgeConfig{Coordinators: []string{"http://127.0.0.1:1"}, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(b.offerPath("a/../b"), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]bool{"a/../b": true, "a": false, "": false} {
		if got := b.isOpen(id); got != want {
			t.Errorf("%q is open: %v", id, got)
		}
	}
	b.cancel("a/../b", "")
	b.cancel("a/../b", "again")
	b.cancel("a", "never")
	if len(b.cancelled) != 1 || b.cancelled["a/../b"] != "user_request" || len(b.cancelQueue) != 1 {
		t.Errorf("%v %v", b.cancelled, b.cancelQueue)
	}
	if left, err := os.ReadDir(filepath.Join(b.cfg.Dir, "offers")); err != nil || len(left) != 1 {
		t.Errorf("%v, %v", left, err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}
