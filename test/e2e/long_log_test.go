package e2e

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/mustertest"
)

// TestLogKeepsItsEnd lets a task print twenty times what its log keeps, while its worker is killed twice and the server once. A follower lives
// through it. The beginning and the end are kept, and one line marks the gap.
func TestLogKeepsItsEnd(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("real processes are not for -short")
	}
	c := mustertest.New(t, t.TempDir())
	dir := t.TempDir()
	w := c.StartWorker("w1", dir)
	spec := mustertest.ShellSpec("long", "for k in $(seq 40); do seq $((k * 10000 - 9999)) $((k * 10000)); sleep 0.2; done; echo END-OF-LOG >&2")
	spec.Tasks[0].LogCap = 1 << 20
	job := c.Submit(spec)
	c.AwaitRunning(job.ID, 1)
	task := muster.TaskID{Job: job.ID}
	followed := make(chan string, 1)
	go func() {
		var b bytes.Buffer
		for line, err := range c.Client.Logs(t.Context(), task, client.LogOptions{Follow: true}) {
			if err != nil {
				b.WriteString("failed: " + err.Error())
				break
			}
			b.Write(line.Data)
		}
		followed <- b.String()
	}()
	w.Kill()
	w = c.StartWorker("w1", dir)
	c.Server.Kill()
	c.StartServer()
	w.Kill()
	c.StartWorker("w1", dir)
	c.Wait(job.ID, 2*time.Minute)
	if got := <-followed; !strings.HasPrefix(got, "1\n2\n") || !strings.HasSuffix(got, "END-OF-LOG\n") {
		t.Errorf("the follower's log ends with %q", got[max(0, len(got)-200):])
	}
	var text bytes.Buffer
	for line, err := range c.Client.Logs(t.Context(), task, client.LogOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		text.Write(line.Data)
	}
	got := text.String()
	if !strings.HasPrefix(got, "1\n2\n") || !strings.Contains(got, "\n399999\n400000\n") || !strings.HasSuffix(got, "END-OF-LOG\n") || strings.Count(got, "is left out here") != 1 {
		t.Errorf("the log has %d bytes and %d gaps, and ends with %q", len(got), strings.Count(got, "is left out here"), got[max(0, len(got)-200):])
	}
}
