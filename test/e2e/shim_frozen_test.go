package e2e

import (
	"errors"
	"fmt"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/link/linktest"
	"github.com/muster-dev/muster/internal/mustertest"
)

// frozenShim is a worker whose shim is frozen while it runs a task, and another worker.
type frozenShim struct {
	*mustertest.Cluster

	proxy       *linktest.Proxy // between the worker and the server
	worker      *mustertest.Process
	dir         string // of the worker
	job         muster.JobID
	releaseFile string
	resume      func()
}

// freezeShim starts a task whose first attempt waits for a file.
func freezeShim(t *testing.T) *frozenShim {
	t.Helper()
	s := &frozenShim{Cluster: mustertest.New(t, t.TempDir()), dir: t.TempDir(), releaseFile: filepath.Join(mustertest.SharedDir(t), "gate")}
	s.proxy = linktest.NewProxy(t, s.Addr)
	s.worker = s.StartWorker("first", s.dir, "--server", "http://"+s.proxy.Addr)
	s.job = s.Submit(withGrace(mustertest.ShellSpec("late",
		fmt.Sprintf(`while [ $MUSTER_ATTEMPT = 1 ] && [ ! -e %s ]; do sleep 0.1; done; echo "{\"attempt\": $MUSTER_ATTEMPT}" >$MUSTER_OUT/result.json`, s.releaseFile)), lease)).ID
	s.AwaitRunning(s.job, 1)
	s.StartWorker("second", t.TempDir())
	shims := mustertest.ShimPIDs(t, s.dir)
	if len(shims) != 1 {
		t.Fatalf("the worker has the shims %v", shims)
	}
	signal := func(sig syscall.Signal) {
		if err := syscall.Kill(shims[0], sig); err != nil && !errors.Is(err, syscall.ESRCH) {
			t.Error(err)
		}
	}
	signal(syscall.SIGSTOP)
	s.resume = func() { signal(syscall.SIGCONT) }
	t.Cleanup(s.resume)
	return s
}

// TestShimFrozenBeyondTheLease freezes a shim for longer than the lease while its worker is in contact with the server: the
// server counts no lease, and the task continues.
func TestShimFrozenBeyondTheLease(t *testing.T) {
	t.Parallel()
	s := freezeShim(t)
	start := time.Now()
	s.Await("the lease is over", time.Minute, func() error {
		if task := s.Tasks(s.job)[0]; task.State != muster.Running || task.Attempt != 1 {
			t.Fatalf("meanwhile the task is %s with attempt %d", task.State, task.Attempt)
		}
		if remaining := lease*3/2 - time.Since(start); remaining > 0 {
			return fmt.Errorf("%s are left", remaining)
		}
		return nil
	})
	s.resume()
	done := s.Submit(onWorker(mustertest.ShellSpec("next", "echo hello"), "first")) // started by the thawed shim
	if got := s.Wait(done.ID, time.Minute); got.State != muster.JobSucceeded {
		t.Errorf("the next task of the worker ended as %s", got.State)
	}
	touch(t, s.releaseFile)
	if got := s.Wait(s.job, time.Minute); got.State != muster.JobSucceeded {
		t.Errorf("the job ended as %s", got.State)
	}
	if task := s.Tasks(s.job)[0]; task.Attempt != 1 || string(task.Result) != `{"attempt":1}` {
		t.Errorf("it took attempt %d, with the result %s", task.Attempt, task.Result)
	}
	awaitNoTasks(t, s.Cluster, s.dir)
}

// TestShimFrozenWithoutContact freezes a shim whose worker is killed, or cut off, for longer than the lease: the attempt is
// lost, and the task runs again on another worker. What the frozen shim cannot end in time ends once it is thawed, and
// its result is not accepted.
func TestShimFrozenWithoutContact(t *testing.T) {
	t.Parallel()
	for name, outage := range map[string]struct{ begin, end func(*frozenShim) }{
		"killed": {func(s *frozenShim) { s.worker.Kill() }, func(s *frozenShim) { s.StartWorker("first", s.dir) }},
		"cut off": {func(s *frozenShim) { s.proxy.Freeze() }, func(s *frozenShim) {
			s.proxy.Thaw()
			s.AwaitWorkerState("first", muster.WorkerActive)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := freezeShim(t)
			outage.begin(s)
			if got := s.Wait(s.job, time.Minute); got.State != muster.JobSucceeded {
				t.Fatalf("the job ended as %s", got.State)
			}
			if len(mustertest.TaskPIDs(t, s.dir)) == 0 {
				t.Error("the first attempt has no processes: the test is meaningless")
			}
			s.resume()
			awaitNoTasks(t, s.Cluster, s.dir)
			touch(t, s.releaseFile)
			outage.end(s)
			done := s.Submit(onWorker(mustertest.ShellSpec("next", "echo hello"), "first"))
			if got := s.Wait(done.ID, time.Minute); got.State != muster.JobSucceeded {
				t.Errorf("the next task of the worker ended as %s", got.State)
			}
			checkLostThenSucceeded(t, s.Cluster, s.job, "second")
			if task := s.Tasks(s.job)[0]; string(task.Result) != `{"attempt":2}` {
				t.Errorf("the result is %s", task.Result)
			}
		})
	}
}

// onWorker places a task on one worker.
func onWorker(s *muster.Spec, worker string) *muster.Spec {
	s.Tasks[0].Where.Workers = []string{worker}
	return s
}
