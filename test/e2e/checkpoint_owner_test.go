package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster/internal/mustertest"
)

// TestCheckpointsStayWithTheirServer moves a worker's data folder to another server, whose first job has the same number: its task does not
// get the checkpoint of the other one.
func TestCheckpointsStayWithTheirServer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	saves := `ls -A $MUSTER_CHECKPOINT; echo "of server A" > $MUSTER_CHECKPOINT/state; exit 3`
	a := mustertest.New(t, t.TempDir())
	w := a.StartWorker("w1", dir)
	spec := mustertest.ShellSpec("first", saves)
	spec.Tasks[0].Retries.Max = 1
	first := a.Submit(spec)
	a.Wait(first.ID, time.Minute)
	if out := a.Output(a.Tasks(first.ID)[0].ID); out != "state\n" {
		t.Errorf("the second attempt on server A finds %q", out)
	}
	w.Kill()
	a.Server.Kill()
	if err := os.Remove(filepath.Join(dir, "identity.json")); err != nil {
		t.Fatal(err)
	}
	b := mustertest.New(t, t.TempDir())
	second := b.Submit(mustertest.ShellSpec("second", saves)) // before the worker shows numbers that it knows, which are skipped
	b.StartWorker("w1", dir)
	if second.ID != first.ID {
		t.Fatalf("the job has number %d, the other one had %d", second.ID, first.ID)
	}
	b.Wait(second.ID, time.Minute)
	if out := b.Output(b.Tasks(second.ID)[0].ID); strings.TrimSpace(out) != "" {
		t.Errorf("the task on server B finds %q", out)
	}
}
