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

// TestServerKilled kills the server twenty times while 200 tasks run and
// submissions arrive: every acknowledged job ends, each task has one result, the
// logs are complete, and running tasks were not restarted.
func TestServerKilled(t *testing.T) {
	const kills, tasks, lines = 20, 200, 60
	c := mustertest.New(t, t.TempDir())
	c.StartWorker("w1", t.TempDir(), "--slots", "260")
	marks := t.TempDir()
	spec := mustertest.Shell("long", fmt.Sprintf(`echo started >> %s/$MUSTER_INDEX; i=0; while [ $i -lt %d ]; do i=$((i+1)); echo line $i; sleep 1; done`, marks, lines))
	spec.Tasks[0].Array = &muster.Array{Ranges: []muster.Range{{First: 0, Last: tasks - 1, Step: 1}}}
	long := c.Submit(spec)
	c.Running(long.ID, tasks)

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
			job, err := c.Client.Submit(t.Context(), mustertest.Shell(fmt.Sprintf("short-%d", n), "echo done"), client.SubmitOptions{})
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
		c.Await("a submission arrives before the next kill", 30*time.Second, func() error {
			if count.Load() == before {
				return errors.New("none has")
			}
			return nil
		})
	}
	close(stop)
	submitters.Wait()
	t.Logf("%d jobs were acknowledged during %d kills", len(acknowledged), kills)

	for _, id := range acknowledged {
		if job := c.Wait(id, time.Minute); job.State != muster.JobSucceeded {
			t.Errorf("job %d ended as %s", id, job.State)
		}
	}
	noDoubles(t, c, append(acknowledged, long.ID))
	if job := c.Wait(long.ID, 3*time.Minute); job.State != muster.JobSucceeded {
		t.Errorf("the long job ended as %s: %v", job.State, job.Counts)
	}
	var want strings.Builder
	for i := range lines {
		fmt.Fprintf(&want, "line %d\n", i+1)
	}
	for _, task := range c.Tasks(long.ID) {
		if task.Attempt != 1 {
			t.Errorf("task %s was restarted: attempt %d", task.ID, task.Attempt)
		}
		if out := c.Output(task.ID); out != want.String() {
			t.Errorf("task %s: the log has %d bytes instead of %d", task.ID, len(out), want.Len())
		}
		if b, err := os.ReadFile(filepath.Join(marks, task.Element)); err != nil || string(b) != "started\n" {
			t.Errorf("task %s started %d times (%v)", task.ID, strings.Count(string(b), "started"), err)
		}
	}
}

// noDoubles holds that no acknowledged job exists twice under its name: retried
// submissions made one job each.
func noDoubles(t *testing.T, c *mustertest.Cluster, ids []muster.JobID) {
	t.Helper()
	names := map[string]muster.JobID{}
	for job, err := range c.Client.Jobs(t.Context(), client.JobQuery{Page: 1000}) {
		if err != nil {
			t.Fatal(err)
		}
		if other, ok := names[job.Name]; ok {
			t.Errorf("jobs %d and %d are both %q: a repeated submission made two", other, job.ID, job.Name)
		}
		names[job.Name] = job.ID
	}
	if len(names) < len(ids) {
		t.Errorf("%d jobs were acknowledged, %d are there", len(ids), len(names))
	}
}

// TestWorkerKilled kills a worker: its tasks are lost after their grace and run
// again on the other one; nothing of the first lives on after its restart.
func TestWorkerKilled(t *testing.T) {
	const tasks = 20
	c := mustertest.New(t, t.TempDir())
	dir := t.TempDir()
	first := c.StartWorker("first", dir, "--slots", strconv.Itoa(tasks))
	marks := t.TempDir()
	spec := mustertest.Shell("marks", fmt.Sprintf(`echo $$ > %s/$MUSTER_INDEX.$MUSTER_ATTEMPT; test $MUSTER_ATTEMPT = 2 || exec sleep 600`, marks))
	spec.Tasks[0].Array = &muster.Array{Ranges: []muster.Range{{First: 0, Last: tasks - 1, Step: 1}}}
	spec.Tasks[0].Disconnect = muster.Disconnect{Grace: muster.Duration(2 * time.Second)}
	job := c.Submit(spec)
	c.Running(job.ID, tasks)
	c.StartWorker("second", t.TempDir(), "--slots", strconv.Itoa(tasks))
	first.Kill()
	if got := c.Wait(job.ID, time.Minute); got.State != muster.JobSucceeded {
		t.Fatalf("the job ended as %s: %v", got.State, got.Counts)
	}
	second, err := c.Client.Worker(t.Context(), "second")
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range c.Tasks(job.ID) {
		if task.Attempt != 2 || task.Worker != second.ID {
			t.Errorf("task %s ended with attempt %d on %s", task.ID, task.Attempt, task.Worker)
		}
		attempts, err := c.Client.Attempts(t.Context(), task.ID)
		if err != nil || len(attempts) != 2 || attempts[0].Outcome != muster.AttemptLost || attempts[0].Reason != muster.WorkerLost {
			t.Errorf("task %s has the attempts %+v (%v)", task.ID, attempts, err)
		}
	}
	c.StartWorker("first", dir)
	c.Await("the leftovers of the killed worker end", 20*time.Second, func() error {
		for i := range tasks {
			b, err := os.ReadFile(filepath.Join(marks, fmt.Sprintf("%d.1", i)))
			if err != nil {
				return err
			}
			if _, err := os.Stat("/proc/" + strings.TrimSpace(string(b))); err == nil {
				return fmt.Errorf("process %s lives", strings.TrimSpace(string(b)))
			}
		}
		return nil
	})
}

// TestWorkerFrozen freezes a worker past its lease and thaws it: its late result
// is refused and the second attempt's stands.
func TestWorkerFrozen(t *testing.T) {
	c := mustertest.New(t, t.TempDir())
	first := c.StartWorker("first", t.TempDir())
	gate := filepath.Join(t.TempDir(), "gate")
	spec := mustertest.Shell("late", fmt.Sprintf(`while [ $MUSTER_ATTEMPT = 1 ] && [ ! -e %s ]; do sleep 0.1; done; echo "{\"attempt\": $MUSTER_ATTEMPT}" > $MUSTER_OUT/result.json`, gate))
	spec.Tasks[0].Disconnect = muster.Disconnect{Grace: muster.Duration(2 * time.Second)}
	job := c.Submit(spec)
	c.Running(job.ID, 1)
	c.StartWorker("second", t.TempDir())
	first.Signal(syscall.SIGSTOP)
	// The task itself is not frozen: it ends while its worker cannot say so.
	if got := c.Wait(job.ID, time.Minute); got.State != muster.JobSucceeded {
		t.Fatalf("the job ended as %s", got.State)
	}
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	first.Signal(syscall.SIGCONT)
	c.Await("the thawed worker is back", 30*time.Second, func() error {
		w, err := c.Client.Worker(t.Context(), "first")
		if err == nil && w.State != muster.WorkerActive {
			err = fmt.Errorf("it is %s", w.State)
		}
		return err
	})
	task := c.Tasks(job.ID)[0]
	if task.Attempt != 2 || !strings.Contains(string(task.Result), `2`) {
		t.Errorf("the task has attempt %d with result %s", task.Attempt, task.Result)
	}
	attempts, err := c.Client.Attempts(t.Context(), task.ID)
	if err != nil || len(attempts) != 2 || attempts[0].Outcome != muster.AttemptLost || attempts[1].Outcome != muster.AttemptSucceeded {
		t.Errorf("the attempts are %+v (%v)", attempts, err)
	}
	// The worker is of use again.
	again := mustertest.Shell("again", "echo hello")
	again.Tasks[0].Where.Workers = []string{"first"}
	if got := c.Wait(c.Submit(again).ID, 30*time.Second); got.State != muster.JobSucceeded {
		t.Errorf("the thawed worker's next task ended as %s", got.State)
	}
}

// TestPartition cuts the way between a worker and the server: both directions
// held back, one of them, and the connection reset, each for less than the
// grace. The task goes on, is not restarted, and its log is whole.
func TestPartition(t *testing.T) {
	const lines = 30
	c := mustertest.New(t, t.TempDir())
	proxy := linktest.NewProxy(t, c.Addr)
	c.StartWorker("far", t.TempDir(), "--server", "http://"+proxy.Addr)
	job := c.Submit(mustertest.Shell("talk", fmt.Sprintf(`i=0; while [ $i -lt %d ]; do i=$((i+1)); echo line $i; sleep 0.5; done`, lines)))
	c.Running(job.ID, 1)
	state := func(want muster.WorkerState) {
		t.Helper()
		c.Await(fmt.Sprintf("the worker is %s", want), 30*time.Second, func() error {
			w, err := c.Client.Worker(t.Context(), "far")
			if err == nil && w.State != want {
				err = fmt.Errorf("it is %s", w.State)
			}
			return err
		})
	}
	proxy.Freeze()
	state(muster.WorkerUnreachable)
	proxy.Thaw()
	state(muster.WorkerActive)
	proxy.FreezeDown()
	proxy.Drop() // the worker notices only that nobody answers its new connections
	state(muster.WorkerUnreachable)
	proxy.Thaw()
	state(muster.WorkerActive)
	proxy.Drop()
	if got := c.Wait(job.ID, time.Minute); got.State != muster.JobSucceeded {
		t.Fatalf("the job ended as %s", got.State)
	}
	var want strings.Builder
	for i := range lines {
		fmt.Fprintf(&want, "line %d\n", i+1)
	}
	task := c.Tasks(job.ID)[0]
	if out := c.Output(task.ID); out != want.String() || task.Attempt != 1 {
		t.Errorf("after attempt %d the log is %q", task.Attempt, out)
	}
}

// TestDiskFull fills the disk under the database: submissions are refused with a
// clear error, nothing acknowledged is lost, and service resumes with the space.
func TestDiskFull(t *testing.T) {
	if testing.Short() {
		t.Skip("real processes are not for -short")
	}
	data := t.TempDir()
	if err := syscall.Mount("tmpfs", data, "tmpfs", 0, "size=16m"); err != nil {
		t.Skipf("this machine does not let us mount a small disk: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(data, syscall.MNT_DETACH) })
	c := mustertest.New(t, data)
	c.StartWorker("w1", t.TempDir())
	before := c.Submit(mustertest.Shell("before", "sleep 3; echo survived"))
	c.Running(before.ID, 1)

	ballast := filepath.Join(data, "ballast")
	fill(t, ballast)
	quick, err := client.New("http://"+c.Addr, mustertest.AdminToken, client.Options{Patience: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	var refused error
	filler := mustertest.Shell("filler", strings.Repeat("# a spec that needs some space\n", 2000)+"true")
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
		t.Fatalf("the server on a full disk took %d jobs and never said so: %v", len(accepted), refused)
	}
	t.Logf("after %d jobs: %v", len(accepted), refused)
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	var after muster.Job
	c.Await("service resumes with the space", 30*time.Second, func() (err error) {
		after, err = quick.Submit(t.Context(), mustertest.Shell("after", "echo hello"), client.SubmitOptions{})
		return err
	})
	for _, id := range append(accepted, before.ID, after.ID) {
		if job := c.Wait(id, time.Minute); job.State != muster.JobSucceeded {
			t.Errorf("job %d ended as %s: %v", id, job.State, job.Counts)
		}
	}
	if out := c.Output(muster.TaskID{Job: before.ID}); out != "survived\n" {
		t.Errorf("the task that ran over the full disk says %q", out)
	}
}

// fill writes a file until the disk is full.
func fill(t *testing.T, path string) {
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
