package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/link/linktest"
	"github.com/muster-dev/muster/internal/mustertest"
)

// TestServerKilled kills the server twenty times while 200 tasks run and jobs are submitted: every acknowledged job ends, each task has one
// result, the logs are complete, and running tasks are not restarted.
func TestServerKilled(t *testing.T) {
	t.Parallel() // it mostly waits
	const kills, tasks = 20, 200
	c := mustertest.New(t, t.TempDir())
	startsDir := mustertest.SharedDir(t)
	c.StartWorker("w1", t.TempDir(), "--slots", "260", "--allow-write", startsDir)
	releaseFile := filepath.Join(startsDir, "gate")
	spec := mustertest.ShellSpec("long", fmt.Sprintf(`echo started >> %s/$MUSTER_INDEX; i=0; while [ ! -e %s ]; do i=$((i+1)); echo line $i; sleep 1; done; echo end`, startsDir, releaseFile))
	long := c.Submit(withArray(spec, tasks))
	c.AwaitRunning(long.ID, tasks)

	var acknowledged []muster.JobID
	var count atomic.Int64 // of acknowledged
	var submitters sync.WaitGroup
	stop := make(chan struct{})
	submitters.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			default:
			}
			job, err := c.Client.Submit(t.Context(), mustertest.ShellSpec(fmt.Sprintf("short-%d", n), "echo done"), client.SubmitOptions{})
			if err == nil {
				acknowledged = append(acknowledged, job.ID)
				count.Add(1)
			}
		}
	})
	for range kills {
		c.Server.Kill()
		before := count.Load()
		c.StartServer()
		c.Await("a submission arrives before the next kill", time.Minute, func() error {
			if count.Load() == before {
				return errors.New("none has")
			}
			return nil
		})
	}
	touch(t, releaseFile)
	close(stop)
	submitters.Wait()
	t.Logf("%d jobs were acknowledged during %d kills", len(acknowledged), kills)

	for _, id := range acknowledged {
		if job := c.Wait(id, time.Minute); job.State != muster.JobSucceeded {
			t.Errorf("job %d ended as %s", id, job.State)
		}
	}
	checkNoDuplicates(t, c, append(acknowledged, long.ID))
	if job := c.Wait(long.ID, 3*time.Minute); job.State != muster.JobSucceeded {
		t.Errorf("the long job ended as %s: %v", job.State, job.Counts)
	}
	for _, task := range c.Tasks(long.ID) {
		if task.Attempt != 1 {
			t.Errorf("task %s was restarted: attempt %d", task.ID, task.Attempt)
		}
		checkNumberedOutput(t, c, task.ID)
		if b, err := os.ReadFile(filepath.Join(startsDir, task.Element)); err != nil || string(b) != "started\n" {
			t.Errorf("task %s started %d times (%v)", task.ID, strings.Count(string(b), "started"), err)
		}
	}
}

// checkNoDuplicates checks that each acknowledged job exists once: retried submissions created one job each.
func checkNoDuplicates(t *testing.T, c *mustertest.Cluster, ids []muster.JobID) {
	t.Helper()
	names := map[string]muster.JobID{}
	for job, err := range c.Client.Jobs(t.Context(), client.JobQuery{Page: 1000}) {
		if err != nil {
			t.Fatal(err)
		}
		if other, ok := names[job.Name]; ok {
			t.Errorf("jobs %d and %d are both %q: a repeated submission created two", other, job.ID, job.Name)
		}
		names[job.Name] = job.ID
	}
	if len(names) < len(ids) {
		t.Errorf("%d jobs were acknowledged, %d are there", len(ids), len(names))
	}
}

// TestWorkerKilled kills a worker that does not return: its tasks end with their lease, without the worker, and run again on the other one.
func TestWorkerKilled(t *testing.T) {
	t.Parallel()
	const tasks = 20
	c := mustertest.New(t, t.TempDir())
	dir := t.TempDir()
	first := c.StartWorker("first", dir, "--slots", strconv.Itoa(tasks))
	spec := mustertest.ShellSpec("again", `test $MUSTER_ATTEMPT = 2 || { setsid sleep 600 & exec sleep 600; }`)
	job := c.Submit(withGrace(withArray(spec, tasks), lease))
	c.AwaitRunning(job.ID, tasks)
	c.StartWorker("second", t.TempDir(), "--slots", strconv.Itoa(tasks))
	first.Kill()
	if got := c.Wait(job.ID, time.Minute); got.State != muster.JobSucceeded {
		t.Fatalf("the job ended as %s: %v", got.State, got.Counts)
	}
	checkLostThenSucceeded(t, c, job.ID, "second")
	awaitNoTasks(t, c, dir)
	c.StartWorker("first", dir)
	again := mustertest.ShellSpec("again", "echo hello")
	again.Tasks[0].Where.Workers = []string{"first"}
	if got := c.Wait(c.Submit(again).ID, time.Minute); got.State != muster.JobSucceeded {
		t.Errorf("the next task of the reconnected worker ended as %s", got.State)
	}
	checkLostThenSucceeded(t, c, job.ID, "second")
}

// checkLostThenSucceeded checks that the first attempt of each task of a job was lost with its worker, and the second one succeeded on another
// worker.
func checkLostThenSucceeded(t *testing.T, c *mustertest.Cluster, job muster.JobID, on string) {
	t.Helper()
	w, err := c.Client.Worker(t.Context(), on)
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range c.Tasks(job) {
		if task.State != muster.Succeeded || task.Attempt != 2 || task.Worker != w.ID {
			t.Errorf("task %s is %s with attempt %d on %s", task.ID, task.State, task.Attempt, task.Worker)
		}
		attempts, err := c.Client.Attempts(t.Context(), task.ID)
		if err != nil || len(attempts) != 2 || attempts[0].Outcome != muster.AttemptLost || attempts[0].Reason != muster.WorkerLost {
			t.Errorf("task %s has the attempts %+v (%v)", task.ID, attempts, err)
		}
	}
}

// TestFrozen freezes a worker, its shim, or both of them past the lease and resumes them: the result of the first attempt is not accepted,
// that of the second attempt is kept.
func TestFrozen(t *testing.T) {
	t.Parallel()
	for name, which := range map[string]struct{ worker, shim bool }{
		"the worker": {worker: true}, "worker and shim": {worker: true, shim: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := mustertest.New(t, t.TempDir())
			dir := t.TempDir()
			first := c.StartWorker("first", dir)
			releaseFile := filepath.Join(mustertest.SharedDir(t), "gate")
			spec := mustertest.ShellSpec("late", fmt.Sprintf(`while [ $MUSTER_ATTEMPT = 1 ] && [ ! -e %s ]; do sleep 0.1; done; echo "{\"attempt\": $MUSTER_ATTEMPT}" > $MUSTER_OUT/result.json`, releaseFile))
			job := c.Submit(withGrace(spec, lease))
			c.AwaitRunning(job.ID, 1)
			c.StartWorker("second", t.TempDir())
			var frozen []int
			if which.worker {
				frozen = append(frozen, first.PID())
			}
			if which.shim {
				frozen = append(frozen, mustertest.ShimPIDs(t, dir)...)
			}
			signal := func(sig syscall.Signal) {
				for _, pid := range frozen {
					if err := syscall.Kill(pid, sig); err != nil {
						t.Error(err)
					}
				}
			}
			signal(syscall.SIGSTOP)
			t.Cleanup(func() { signal(syscall.SIGCONT) })
			if got := c.Wait(job.ID, time.Minute); got.State != muster.JobSucceeded {
				t.Fatalf("the job ended as %s", got.State)
			}
			if !which.shim {
				awaitNoTasks(t, c, dir) // a frozen worker does not keep its tasks alive
			}
			touch(t, releaseFile)
			signal(syscall.SIGCONT)
			c.AwaitWorkerState("first", muster.WorkerActive)
			if task := c.Tasks(job.ID)[0]; !strings.Contains(string(task.Result), `2`) {
				t.Errorf("the result is %s", task.Result)
			}
			// The worker is of use again.
			again := mustertest.ShellSpec("again", "echo hello")
			again.Tasks[0].Where.Workers = []string{"first"}
			if got := c.Wait(c.Submit(again).ID, time.Minute); got.State != muster.JobSucceeded {
				t.Errorf("the thawed worker's next task ended as %s", got.State)
			}
			checkLostThenSucceeded(t, c, job.ID, "second")
		})
	}
}

// TestShimFrozen freezes a shim for a while: its tasks continue, tasks that are to start
// wait for it, and nothing is lost.
func TestShimFrozen(t *testing.T) {
	t.Parallel()
	c := mustertest.New(t, t.TempDir())
	dir := t.TempDir()
	c.StartWorker("w1", dir)
	releaseFile := filepath.Join(mustertest.SharedDir(t), "gate")
	job := c.Submit(mustertest.ShellSpec("talk", numberedLinesScript(releaseFile)+"touch $MUSTER_OUT/done"))
	c.AwaitRunning(job.ID, 1)
	shims := mustertest.ShimPIDs(t, dir)
	if len(shims) != 1 {
		t.Fatalf("the worker has the shims %v", shims)
	}
	if err := syscall.Kill(shims[0], syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	more := c.Submit(mustertest.ShellSpec("more", "echo hello"))
	touch(t, releaseFile)
	c.Await("the task ends under the frozen shim", time.Minute, func() error {
		found, err := filepath.Glob(filepath.Join(dir, "tasks", "*", "out", "done"))
		if err == nil && len(found) == 0 {
			err = errors.New("not yet")
		}
		return err
	})
	if err := syscall.Kill(shims[0], syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	for _, id := range []muster.JobID{job.ID, more.ID} {
		if got := c.Wait(id, time.Minute); got.State != muster.JobSucceeded {
			t.Errorf("job %d ended as %s: %+v", id, got.State, c.Tasks(id)[0])
		}
	}
	task := c.Tasks(job.ID)[0]
	if task.Attempt != 1 {
		t.Errorf("it took attempt %d", task.Attempt)
	}
	checkNumberedOutput(t, c, task.ID)
}

// TestPartition cuts the way between a worker and the server: both directions
// held back, one of them, and the connection reset, each for less than the
// grace. The task continues, is not restarted, and its log is whole.
func TestPartition(t *testing.T) {
	t.Parallel() // it mostly waits
	c := mustertest.New(t, t.TempDir())
	proxy := linktest.NewProxy(t, c.Addr)
	c.StartWorker("far", t.TempDir(), "--server", "http://"+proxy.Addr)
	releaseFile := filepath.Join(mustertest.SharedDir(t), "gate")
	job := c.Submit(mustertest.ShellSpec("talk", numberedLinesScript(releaseFile)))
	c.AwaitRunning(job.ID, 1)
	for _, outage := range []func(){
		proxy.Freeze,
		func() { proxy.FreezeDown(); proxy.Drop() }, // the worker notices only that its new connections get no response
		func() { proxy.FreezeUp(); proxy.Drop() },
		proxy.FreezeUp,
	} {
		outage()
		c.AwaitWorkerState("far", muster.WorkerUnreachable)
		proxy.Thaw()
		c.AwaitWorkerState("far", muster.WorkerActive)
	}
	proxy.Drop()
	touch(t, releaseFile)
	if got := c.Wait(job.ID, time.Minute); got.State != muster.JobSucceeded {
		t.Fatalf("the job ended as %s", got.State)
	}
	task := c.Tasks(job.ID)[0]
	if task.Attempt != 1 {
		t.Errorf("it took attempt %d", task.Attempt)
	}
	checkNumberedOutput(t, c, task.ID)
}

// TestLongPartition interrupts the connection for longer than the grace, in both directions and in each of them: the task runs on another
// worker, the disconnected one ends its copy, and its later reports are ignored.
func TestLongPartition(t *testing.T) {
	t.Parallel() // it mostly waits
	for name, outage := range map[string]func(*linktest.Proxy){
		"both ways": (*linktest.Proxy).Freeze, "from the server": (*linktest.Proxy).FreezeDown, "to the server": (*linktest.Proxy).FreezeUp,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := mustertest.New(t, t.TempDir())
			proxy := linktest.NewProxy(t, c.Addr)
			dir := t.TempDir()
			c.StartWorker("far", dir, "--server", "http://"+proxy.Addr)
			job := c.Submit(withGrace(mustertest.ShellSpec("again", `test $MUSTER_ATTEMPT = 2 || sleep 600`), lease))
			c.AwaitRunning(job.ID, 1)
			c.StartWorker("near", t.TempDir())
			outage(proxy)
			if got := c.Wait(job.ID, time.Minute); got.State != muster.JobSucceeded {
				t.Fatalf("the job ended as %s: %v", got.State, got.Counts)
			}
			awaitNoTasks(t, c, dir)
			proxy.Thaw()
			c.AwaitWorkerState("far", muster.WorkerActive)
			checkLostThenSucceeded(t, c, job.ID, "near")
		})
	}
}

// TestDiskFull fills the disk under the database: submissions are refused with a
// clear error, nothing acknowledged is lost, and service resumes with the space.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("real processes are not for -short")
	}
	data := t.TempDir()
	if err := syscall.Mount("tmpfs", data, "tmpfs", 0, "size=16m"); err != nil {
		t.Skipf("a small disk cannot be mounted on this machine: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(data, syscall.MNT_DETACH) })
	c := mustertest.New(t, data)
	dir, releaseFile := t.TempDir(), filepath.Join(mustertest.SharedDir(t), "gate")
	c.StartWorker("w1", dir)
	before := c.Submit(mustertest.ShellSpec("before", fmt.Sprintf("while [ ! -e %s ]; do sleep 0.1; done; echo survived", releaseFile)))
	c.AwaitRunning(before.ID, 1)

	ballast := filepath.Join(data, "ballast")
	fillDisk(t, ballast)
	quick, err := client.New("http://"+c.Addr, mustertest.AdminToken, client.Options{RetryTimeout: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	var refused error
	filler := mustertest.ShellSpec("filler", strings.Repeat("# a spec that needs some space\n", 2000)+"true")
	var accepted []muster.JobID
	for range 200 {
		job, err := quick.Submit(t.Context(), filler, client.SubmitOptions{})
		if err != nil && muster.CodeOf(err) == muster.StorageFull {
			refused = err
			break
		}
		if err == nil {
			accepted = append(accepted, job.ID)
		}
	}
	if refused == nil || !strings.Contains(refused.Error(), "full") {
		t.Fatalf("the server on a full disk accepted %d jobs without an error: %v", len(accepted), refused)
	}
	t.Logf("after %d jobs: %v", len(accepted), refused)
	touch(t, releaseFile)
	awaitNoTasks(t, c, dir) // the server cannot keep how it ended
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	var after muster.Job
	c.Await("service resumes with the space", time.Minute, func() (err error) {
		after, err = quick.Submit(t.Context(), mustertest.ShellSpec("after", "echo hello"), client.SubmitOptions{})
		return err
	})
	for _, id := range append(accepted, before.ID, after.ID) {
		if job := c.Wait(id, time.Minute); job.State != muster.JobSucceeded {
			t.Errorf("job %d ended as %s: %v", id, job.State, job.Counts)
		}
	}
	if out := c.Output(muster.TaskID{Job: before.ID}); out != "survived\n" {
		t.Errorf("the task on the full disk has the message %q", out)
	}
}

// fillDisk writes a file until the disk is full.
func fillDisk(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	block := make([]byte, 4096)
	for {
		if _, err := f.Write(block); err != nil {
			return
		}
	}
}
