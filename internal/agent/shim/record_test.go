//go:build unix

package shim

import (
	"syscall"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/tasklog"
)

// Samples wait for no shim, and are in the log before its size is known.
func TestSamplesDoNotWaitForTheShim(t *testing.T) {
	dir := t.TempDir()
	c := detached(t, dir)
	s := shell(t, "echo ready; exec sleep 1000")
	p, k := begin(t, c, s)
	await(t, "the log grows", func() bool { _, size := k.seen(); return size > 0 })
	pid := homeOf(t, dir).owner().PID
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGCONT) })
	const samples = 50
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		for range samples {
			p.Record(tasklog.Usage, []byte(`{"at":1}`))
		}
	}()
	select {
	case <-sent:
	case <-time.After(replyWait / 2):
		t.Fatal("a sample waits for the shim")
	}
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	size, got := p.LogSize(), 0
	all := records(t, dir, s.Attempt)
	for _, r := range all {
		if r.Stream == tasklog.Usage {
			got++
		}
	}
	if got != samples || size != sizeOf(all) {
		t.Errorf("the log has %d of %d samples and %d bytes, told are %d", got, samples, sizeOf(all), size)
	}
	p.Stop(brokenLog(muster.Errorf(muster.Internal, "the test is over")), muster.Kill{Signal: "SIGKILL"})
	wait(t, p)
}

// homeOf returns the only home of a data dir.
func homeOf(t *testing.T, dir string) *home {
	t.Helper()
	homes, err := homesIn(dir)
	if err != nil || len(homes) != 1 {
		t.Fatalf("%d homes: %v", len(homes), err)
	}
	return homes[0]
}
