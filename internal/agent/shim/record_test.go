//go:build unix

package shim

import (
	"syscall"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/tasklog"
	"github.com/muster-dev/muster/internal/testkit"
)

// A sample does not wait for the shim, and is in the log before LogSize returns.
func TestSamplesDoNotWaitForTheShim(t *testing.T) {
	dir := t.TempDir()
	c := openDetached(t, dir)
	s := shellTask(t, "echo ready; exec sleep 1000")
	p, k := startTask(t, c, s)
	testkit.Await(t, "the log to grow", func() bool { _, size := k.last(); return size > 0 })
	pid := stateDirOf(t, dir).pid().PID
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGCONT) })
	const samples = 50
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		for range samples {
			p.AppendLog(tasklog.Usage, []byte(`{"at":1}`))
		}
	}()
	select {
	case <-sent:
	case <-time.After(replyTimeout / 2):
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
		t.Errorf("the log has %d of %d samples and %d bytes, reported are %d", got, samples, sizeOf(all), size)
	}
	p.Stop(logFailure(muster.Errorf(muster.Internal, "the test is over")), muster.Kill{Signal: "SIGKILL"})
	waitTask(t, p)
}

// stateDirOf returns the only state directory of a data dir.
func stateDirOf(t *testing.T, dir string) *stateDir {
	t.Helper()
	homes, err := listStateDirs(dir)
	if err != nil || len(homes) != 1 {
		t.Fatalf("%d state directories: %v", len(homes), err)
	}
	return homes[0]
}
