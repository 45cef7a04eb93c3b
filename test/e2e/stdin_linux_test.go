package e2e

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/mustertest/containertest"
)

// TestStandardInput passes 5 MB of any bytes to a process and to a container, whose worker is killed before they read, and which read it again in
// their second attempt.
func TestStandardInput(t *testing.T) {
	t.Parallel()
	b := newContainerEnv(t, containertest.SharedEngine(t))
	w := b.start("--slots", "2")
	data := make([]byte, 5_000_000)
	random := rand.NewChaCha8([32]byte{1})
	_, _ = random.Read(data) // it never fails
	sum := sha256.Sum256(data)
	want := hex.EncodeToString(sum[:]) + "  -\n"
	script := `[ $MUSTER_ATTEMPT = 2 ] || while [ ! -e gate ]; do sleep 0.1; done; sha256sum; [ $MUSTER_ATTEMPT = 2 ]`
	var jobs []muster.JobID
	for _, args := range [][]string{nil, {"--image", b.image}} {
		args = append(append([]string{"run", "-d", "-i", "--retries", "1"}, args...), "-c", script)
		out, errs, status := b.runClient(string(data), args...)
		if status != 0 || errs != "" {
			t.Fatalf("exit status %d: %s", status, errs)
		}
		var id muster.JobID
		if _, err := fmt.Sscan(out, &id); err != nil {
			t.Fatal(err)
		}
		b.AwaitRunning(id, 1)
		jobs = append(jobs, id)
	}
	w.Kill()
	b.start("--slots", "2")
	b.release()
	for _, id := range jobs {
		b.Wait(id, 2*time.Minute)
		task := b.Tasks(id)[0]
		if out := b.Output(task.ID); task.State != muster.Succeeded || task.Attempt != 2 || !strings.Contains(out, want) {
			t.Errorf("attempt %d of task %s is %s (%s), it printed %q", task.Attempt, task.ID, task.State, task.Message, out)
		}
	}
	if _, errs, status := b.runClient("x", "run", "-i", "--gang", "2", "--", "cat"); status == 0 || !strings.Contains(errs, "gang") {
		t.Errorf("a gang: exit status %d: %s", status, errs)
	}
	b.awaitCleanup()
}
