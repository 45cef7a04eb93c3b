package bridge

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/muster-dev/muster"
)

func TestCountPending(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, OutboxName)
	if _, _, err := CountPending(path); err == nil {
		t.Error("an outbox that is not there has no error")
	}
	o, err := openOutbox(dir)
	if err != nil {
		t.Fatal(err)
	}
	states := []string{stateAccepted, stateSubmitted, stateEnded, stateSending, stateReported, stateRejected}
	for _, state := range states {
		if err := o.put(&record{ID: "job " + state, State: state, At: muster.Time(1)}); err != nil {
			t.Fatal(err)
		}
	}
	if _, running, err := CountPending(path); err != nil || !running {
		t.Errorf("while it is open: running %v, %v", running, err)
	}
	if err := o.db.Close(); err != nil {
		t.Fatal(err)
	}
	if jobs, running, err := CountPending(path); jobs != 4 || running || err != nil {
		t.Errorf("%d jobs, running %v, %v", jobs, running, err)
	}
	if err := os.WriteFile(path, []byte("no database"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := CountPending(path); err == nil {
		t.Error("a damaged outbox has no error")
	}
}
