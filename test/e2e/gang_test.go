//go:build linux

package e2e

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/mustertest"
)

// gangs is held by a test with a gang, until its processes are gone.
var gangs sync.Mutex

// meetingGang is a gang whose members connect over the network, and then wait until one is lost, and the flags with which a worker lets its
// tasks run their program.
func meetingGang(t *testing.T, size int) (spec *muster.Spec, flags []string) {
	t.Helper()
	dir := t.TempDir()
	program := filepath.Join(dir, "meet")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./testdata/meet").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return &muster.Spec{Name: "meet", Tasks: []muster.TaskSpec{{
		Name: "meet", Run: &muster.Command{Argv: []string{program}}, Gang: &muster.Gang{Size: size},
		Disconnect: muster.Disconnect{Grace: muster.Duration(lease)},
	}}}, []string{"--allow-read", dir}
}

// awaitMet waits until every member has learned the sum in its first attempt.
func awaitMet(t *testing.T, c *mustertest.Cluster, job muster.JobID, size int) {
	t.Helper()
	c.Await("the members meet", time.Minute, func() error {
		for n := range size {
			reported := 0
			for _, err := range c.Client.Logs(t.Context(), muster.TaskID{Job: job, Num: n}, client.LogOptions{Stream: client.Stdout}) {
				if err != nil {
					return err
				}
				reported++
			}
			if reported == 0 {
				return fmt.Errorf("member %d printed nothing", n)
			}
		}
		return nil
	})
}

// checkSecondAttempt checks that the gang has succeeded in its second attempt, and what the
// first one cost.
func checkSecondAttempt(t *testing.T, c *mustertest.Cluster, job muster.JobID, retried, crashes int) {
	t.Helper()
	c.Wait(job, time.Minute)
	for n, task := range c.Tasks(job) {
		if task.State != muster.Succeeded || task.Attempt != 2 || task.Retries != retried || task.Crashes != crashes {
			t.Errorf("member %d is %s (%s: %s), attempt %d, after %d retries and %d crashes", n, task.State, task.Reason, task.Message, task.Attempt, task.Retries, task.Crashes)
		}
		if out := c.Output(task.ID); out != "sum 6\n" {
			t.Errorf("member %d printed %q", n, out)
		}
	}
}

// TestGangLosesAMember runs three members on three workers. One is killed: the others, which fail or are stopped, restart with it, which
// counts as one retry.
func TestGangLosesAMember(t *testing.T) {
	t.Parallel()
	gangs.Lock() // the first gangs of two servers may have the same port
	t.Cleanup(gangs.Unlock)
	c := mustertest.New(t, t.TempDir())
	spec, flags := meetingGang(t, 3)
	flags = append(flags, "--slots", "1")
	for _, name := range []string{"w1", "w2"} {
		c.StartWorker(name, t.TempDir(), flags...)
	}
	spec.Tasks[0].Retries.Max = 1
	job := c.Submit(spec)
	awaitExplanation(t, c, job.ID, "the gang needs room for 3 tasks at once, and the workers together have room for 2")
	c.StartWorker("w3", t.TempDir(), flags...)
	c.AwaitRunning(job.ID, 3)
	awaitMet(t, c, job.ID, 3)
	on := map[muster.WorkerID]bool{}
	for _, task := range c.Tasks(job.ID) {
		on[task.Worker] = true
	}
	if len(on) != 3 {
		t.Errorf("the members are on %v", on)
	}
	pids := mustertest.ProcessesMatching(t, spec.Tasks[0].Run.Argv[0], "\x00MUSTER_RANK=1\x00")
	if len(pids) != 1 {
		t.Fatalf("rank 1 has the processes %v", pids)
	}
	if err := syscall.Kill(pids[0], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	checkSecondAttempt(t, c, job.ID, 1, 0)
}

// TestGangLosesAWorker kills one of two workers with its tasks. The member on the other one fails at once; when the lease has ended, the gang
// restarts on the remaining workers without using a retry.
func TestGangLosesAWorker(t *testing.T) {
	t.Parallel()
	gangs.Lock() // the first gangs of two servers may have the same port
	t.Cleanup(gangs.Unlock)
	c := mustertest.New(t, t.TempDir())
	lost := t.TempDir()
	spec, flags := meetingGang(t, 3)
	w := c.StartWorker("w1", lost, append(flags, "--slots", "2")...)
	c.StartWorker("w2", t.TempDir(), append(flags, "--slots", "1")...)
	job := c.Submit(spec)
	c.AwaitRunning(job.ID, 3)
	awaitMet(t, c, job.ID, 3)
	c.StartWorker("w3", t.TempDir(), append(flags, "--slots", "2")...)
	w.Kill()
	killPIDs(t, append(mustertest.ShimPIDs(t, lost), mustertest.ProcessesMatching(t, spec.Tasks[0].Run.Argv[0], lost)...)...)
	checkSecondAttempt(t, c, job.ID, 0, 1)
}

// TestGangIsCancelledAsOne cancels one member: the processes of all members end.
func TestGangIsCancelledAsOne(t *testing.T) {
	t.Parallel()
	gangs.Lock() // the first gangs of two servers may have the same port
	t.Cleanup(gangs.Unlock)
	c := mustertest.New(t, t.TempDir())
	spec, flags := meetingGang(t, 3)
	for _, name := range []string{"w1", "w2"} {
		c.StartWorker(name, t.TempDir(), append(flags, "--slots", "2")...)
	}
	job := c.Submit(spec)
	c.AwaitRunning(job.ID, 3)
	awaitMet(t, c, job.ID, 3)
	if _, err := c.Client.Cancel(t.Context(), job.ID, []client.Span{{First: 2, Last: 2}}); err != nil {
		t.Fatal(err)
	}
	c.Wait(job.ID, time.Minute)
	for n, task := range c.Tasks(job.ID) {
		if task.State != muster.Cancelled && task.State != muster.Failed {
			t.Errorf("member %d is %s (%s)", n, task.State, task.Reason)
		}
	}
	c.Await("nothing of the gang is left", time.Minute, func() error {
		if pids := mustertest.ProcessesMatching(t, spec.Tasks[0].Run.Argv[0]); len(pids) > 0 {
			return fmt.Errorf("there are %v", pids)
		}
		return nil
	})
}
