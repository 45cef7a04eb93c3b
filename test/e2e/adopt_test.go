package e2e

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/mustertest"
)

// ending is how a task of TestWorkerKilledAgainAndAgain ends.
type ending struct {
	shell  string
	state  muster.TaskState
	reason muster.Reason
	code   int
}

var endings = []ending{
	{"exit 0", muster.Succeeded, "", 0},
	{"exit 3", muster.Failed, muster.ExitCode, 3},
	{"kill -USR1 $$", muster.Failed, muster.Signal, 138},
	{"kill -TERM $$", muster.Failed, muster.Signal, 143},
	{`echo "{\"n\": $MUSTER_INDEX}" > $MUSTER_OUT/result.json`, muster.Succeeded, "", 0},
}

// TestWorkerKilledAgainAndAgain kills a worker twenty times while fifty tasks run
// and end: each runs once, ends with its true exit code and result, and has its whole
// log.
func TestWorkerKilledAgainAndAgain(t *testing.T) {
	t.Parallel()
	const kills, tasks = 20, 50
	c := mustertest.New(t, t.TempDir())
	dir, startsDir := t.TempDir(), mustertest.SharedDir(t)
	w := c.StartWorker("w1", dir, "--slots", strconv.Itoa(tasks), "--allow-write", startsDir)
	var script strings.Builder
	// Some end with the first kill, some after the last one.
	releaseFile := filepath.Join(startsDir, "gate")
	fmt.Fprintf(&script, `echo started >> %s/$MUSTER_INDEX; while [ ! -e %s ]; do sleep 0.1; done; `, startsDir, releaseFile)
	fmt.Fprintf(&script, `i=0; while [ $i -lt $((3 + 2 * MUSTER_INDEX)) ]; do i=$((i+1)); echo line $i; sleep 0.1; done; case $((MUSTER_INDEX %% %d)) in `, len(endings))
	for i, e := range endings {
		fmt.Fprintf(&script, "%d) %s;; ", i, e.shell)
	}
	script.WriteString("esac")
	job := c.Submit(withArray(mustertest.ShellSpec("long", script.String()), tasks))
	c.AwaitRunning(job.ID, tasks)
	touch(t, releaseFile)
	start := time.Now()
	for range kills {
		w.Kill()
		w = c.StartWorker("w1", dir, "--slots", strconv.Itoa(tasks), "--allow-write", startsDir)
	}
	current, err := c.Client.Job(t.Context(), job.ID)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d kills in %v; after them %v", kills, time.Since(start), current.Counts)
	c.Wait(job.ID, 2*time.Minute)
	for _, task := range c.Tasks(job.ID) {
		e := endings[task.ID.Num%len(endings)]
		if task.State != e.state || task.Reason != e.reason || task.ExitCode == nil || *task.ExitCode != e.code || task.Attempt != 1 {
			t.Errorf("task %s is %s (%s, %s) after attempt %d, want %s with exit code %d", task.ID, task.State, task.Reason, task.Message, task.Attempt, e.state, e.code)
		}
		if want := fmt.Sprintf(`{"n":%d}`, task.ID.Num); strings.Contains(e.shell, "result.json") && string(task.Result) != want {
			t.Errorf("task %s has the result %s, want %s", task.ID, task.Result, want)
		}
		if n := startCount(t, startsDir, task.ID.Num); n != 1 {
			t.Errorf("task %s was started %d times", task.ID, n)
		}
		if out, want := c.Output(task.ID), numberedLines(3+2*task.ID.Num); out != want {
			t.Errorf("task %s: the log has %d bytes instead of %d", task.ID, len(out), len(want))
		}
	}
	awaitNoTasks(t, c, dir)
}

// TestTasksEndWithoutAWorker lets tasks end, and one outlive its timeout, while there
// is not a worker: the next one reports it, with the outputs.
func TestTasksEndWithoutAWorker(t *testing.T) {
	t.Parallel()
	c := mustertest.New(t, t.TempDir())
	dir, startsDir := t.TempDir(), mustertest.SharedDir(t)
	w := c.StartWorker("w1", dir)
	releaseFile := filepath.Join(startsDir, "gate")
	wait := fmt.Sprintf("while [ ! -e %s ]; do sleep 0.1; done; ", releaseFile)
	good := mustertest.ShellSpec("good", wait+"echo late; echo data > $MUSTER_OUT/model.bin")
	bad := mustertest.ShellSpec("bad", wait+"echo failing >&2; exit 9")
	slow := mustertest.ShellSpec("slow", "sleep 600")
	slow.Tasks[0].Timeout = muster.Duration(10 * time.Second) // its worker is killed before
	var jobs []muster.JobID
	for _, s := range []*muster.Spec{good, bad, slow} {
		job := c.Submit(s)
		c.AwaitRunning(job.ID, 1)
		jobs = append(jobs, job.ID)
	}
	w.Kill()
	touch(t, releaseFile)
	awaitNoTasks(t, c, dir) // the timeout was enforced, too
	c.StartWorker("w1", dir)
	want := map[muster.JobID]ending{
		jobs[0]: {state: muster.Succeeded}, jobs[1]: {state: muster.Failed, reason: muster.ExitCode}, jobs[2]: {state: muster.TimedOut, reason: muster.Timeout},
	}
	for id, e := range want {
		c.Wait(id, time.Minute)
		if task := c.Tasks(id)[0]; task.State != e.state || task.Reason != e.reason || task.Attempt != 1 {
			t.Errorf("job %d: the task is %s (%s, %s) after attempt %d", id, task.State, task.Reason, task.Message, task.Attempt)
		}
	}
	task := c.Tasks(jobs[0])[0]
	if out := c.Output(task.ID); out != "late\n" {
		t.Errorf("the output without a worker is %q", out)
	}
	found := false
	for _, a := range task.Artifacts {
		found = found || a.Name == "model.bin"
	}
	if !found {
		t.Errorf("the artifacts are %v", task.Artifacts)
	}
}

// TestShimKilled kills the shim while its worker runs: the tasks end at once as the fleet's fault, with all of their processes, and run again.
func TestShimKilled(t *testing.T) {
	t.Parallel()
	const tasks = 5
	c := mustertest.New(t, t.TempDir())
	dir, startsDir := t.TempDir(), mustertest.SharedDir(t)
	c.StartWorker("w1", dir, "--slots", strconv.Itoa(tasks), "--allow-write", startsDir)
	job := c.Submit(withArray(mustertest.ShellSpec("again", fmt.Sprintf(`echo started >> %s/$MUSTER_INDEX; test $MUSTER_ATTEMPT = 2 || sleep 600`, startsDir)), tasks))
	c.AwaitRunning(job.ID, tasks)
	old := mustertest.ShimPIDs(t, dir)
	if len(old) != 1 {
		t.Fatalf("the worker has the shims %v", old)
	}
	if err := syscall.Kill(old[0], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if got := c.Wait(job.ID, time.Minute); got.State != muster.JobSucceeded {
		t.Errorf("the job ended as %s: %v", got.State, got.Counts)
	}
	for _, task := range c.Tasks(job.ID) {
		attempts, err := c.Client.Attempts(t.Context(), task.ID)
		if err != nil || len(attempts) != 2 || attempts[0].Reason != muster.WorkerInternal {
			t.Errorf("task %s has the attempts %+v (%v)", task.ID, attempts, err)
		}
	}
	awaitNoTasks(t, c, dir)
}

// TestWorkerAndShimKilled kills both: when the worker is back, no processes of their tasks remain, and the tasks run again.
func TestWorkerAndShimKilled(t *testing.T) {
	t.Parallel()
	c := mustertest.New(t, t.TempDir())
	dir := t.TempDir()
	w := c.StartWorker("w1", dir)
	job := c.Submit(withArray(mustertest.ShellSpec("again", `test $MUSTER_ATTEMPT = 2 || { setsid sleep 600 & sleep 600; }`), 3))
	c.AwaitRunning(job.ID, 3)
	killWorkerAndShims(t, w, dir)
	c.StartWorker("w1", dir)
	awaitNoTasks(t, c, dir)
	if got := c.Wait(job.ID, time.Minute); got.State != muster.JobSucceeded {
		t.Errorf("the job ended as %s: %v", got.State, got.Counts)
	}
}

// TestUpgradeInPlace replaces the program under a worker with running tasks, and
// asks it to continue as the new one: no task notices. One that cannot run is refused.
func TestUpgradeInPlace(t *testing.T) {
	t.Parallel()
	const tasks = 20
	c := mustertest.New(t, t.TempDir())
	dir, startsDir, bin := t.TempDir(), mustertest.SharedDir(t), t.TempDir()
	program := filepath.Join(bin, "muster")
	replaceProgram(t, mustertest.Program(t), program)
	w := c.StartWorkerProgram(program, "w1", dir, "--slots", "40", "--allow-write", startsDir)
	releaseFile := filepath.Join(startsDir, "gate")
	spec := withArray(mustertest.ShellSpec("long", fmt.Sprintf(`echo started >> %s/$MUSTER_INDEX; %s`, startsDir, numberedLinesScript(releaseFile))), tasks)
	job := c.Submit(spec)
	c.AwaitRunning(job.ID, tasks)
	for n := range 3 {
		replaceProgram(t, mustertest.Program(t), program)
		if err := syscall.Kill(w.PID(), syscall.SIGUSR2); err != nil {
			t.Fatal(err)
		}
		awaitUpgrade(c, w, n+1)
		c.AwaitWorkerState("w1", muster.WorkerActive)
		isSameFile(t, fmt.Sprintf("/proc/%d/exe", w.PID()), program)
	}
	if err := os.WriteFile(program+".new", []byte("#!/bin/sh\necho I am broken\nexit 1\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(program+".new", program); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(w.PID(), syscall.SIGUSR2); err != nil {
		t.Fatal(err)
	}
	c.Await("the broken program is refused", time.Minute, func() error {
		if !strings.Contains(w.Log(), "I am broken") {
			return errors.New("not yet")
		}
		return nil
	})
	more := c.Submit(mustertest.ShellSpec("more", "echo hello"))
	touch(t, releaseFile)
	for _, id := range []muster.JobID{job.ID, more.ID} {
		if got := c.Wait(id, time.Minute); got.State != muster.JobSucceeded {
			t.Errorf("job %d ended as %s: %v", id, got.State, got.Counts)
		}
	}
	for _, task := range c.Tasks(job.ID) {
		if task.Attempt != 1 || startCount(t, startsDir, task.ID.Num) != 1 {
			t.Errorf("task %s: attempt %d, %d starts", task.ID, task.Attempt, startCount(t, startsDir, task.ID.Num))
		}
		checkNumberedOutput(t, c, task.ID)
	}
	// The worker of before is still the same one, and leaves in order.
	w.Signal(syscall.SIGTERM)
	c.AwaitWorkerState("w1", muster.WorkerGone)
}

// replaceProgram puts a copy of a program in place of another one, as package managers do.
func replaceProgram(t *testing.T, from, to string) {
	t.Helper()
	in, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.OpenFile(to+".new", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o700)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(out, in)
	if err := errors.Join(err, out.Close(), os.Rename(to+".new", to)); err != nil {
		t.Fatal(err)
	}
}

func isSameFile(t *testing.T, a, b string) {
	t.Helper()
	one, err := os.Stat(a)
	if err != nil {
		t.Fatal(err)
	}
	two, err := os.Stat(b)
	if err != nil {
		t.Fatal(err)
	}
	if !os.SameFile(one, two) {
		t.Errorf("%s is not %s", a, b)
	}
}

// TestUpKilled kills server and worker in one process: the task continues, and the
// next process takes it up.
func TestUpKilled(t *testing.T) {
	t.Parallel()
	c := mustertest.NewWith(t, t.TempDir(), mustertest.Options{Up: true})
	startsDir := mustertest.SharedDir(t)
	releaseFile, releaseFile2 := filepath.Join(startsDir, "gate"), filepath.Join(startsDir, "gate2")
	job := c.Submit(mustertest.ShellSpec("talk", numberedLinesScript(releaseFile)))
	c.AwaitRunning(job.ID, 1)
	c.Server.Kill()
	c.StartServer()
	touch(t, releaseFile)
	if got := c.Wait(job.ID, time.Minute); got.State != muster.JobSucceeded {
		t.Fatalf("the job ended as %s", got.State)
	}
	task := c.Tasks(job.ID)[0]
	if task.Attempt != 1 {
		t.Errorf("it took attempt %d", task.Attempt)
	}
	checkNumberedOutput(t, c, task.ID)
	job = c.Submit(mustertest.ShellSpec("more", numberedLinesScript(releaseFile2)+"exit 4"))
	c.AwaitRunning(job.ID, 1)
	c.Server.Signal(syscall.SIGUSR2)
	awaitUpgrade(c, c.Server, 1)
	touch(t, releaseFile2)
	if got := c.Wait(job.ID, time.Minute); got.State != muster.JobFailed {
		t.Errorf("the job ended as %s", got.State)
	}
	if task = c.Tasks(job.ID)[0]; task.Attempt != 1 || task.ExitCode == nil || *task.ExitCode != 4 {
		t.Errorf("after an upgrade the task is %+v", task)
	}
	checkNumberedOutput(t, c, task.ID)
}

// TestSecondWorkerIsRefused starts a worker on the data dir of one that runs.
func TestSecondWorkerIsRefused(t *testing.T) {
	t.Parallel()
	c := mustertest.New(t, t.TempDir())
	dir := t.TempDir()
	c.StartWorker("w1", dir)
	second := c.LaunchWorkerProgram(mustertest.Program(t), "w2", dir)
	select {
	case <-second.Done():
	case <-time.After(time.Minute):
		t.Fatal("the second worker runs")
	}
	if !strings.Contains(second.Log(), "another worker uses the data dir "+dir) {
		t.Errorf("got %q", second.Log())
	}
}

// TestDiskOfWorkerFull fills the disk of a worker while a task prints: that attempt
// ends for it, the worker continues, recovers its tasks even if it is killed, and
// with the space everything succeeds.
func TestDiskOfWorkerFull(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("real processes are not for -short")
	}
	dir, startsDir := t.TempDir(), mustertest.SharedDir(t)
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=24m"); err != nil {
		t.Skipf("a small disk cannot be mounted on this machine: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	c := mustertest.New(t, t.TempDir())
	w := c.StartWorker("w1", dir)
	releaseFile := filepath.Join(startsDir, "gate")
	quiet := c.Submit(mustertest.ShellSpec("quiet", fmt.Sprintf("while [ ! -e %s ]; do sleep 0.1; done; echo survived", releaseFile)))
	prints := c.Submit(mustertest.ShellSpec("prints", fmt.Sprintf("while [ ! -e %s ]; do echo some words; sleep 0.05; done", releaseFile)))
	c.AwaitRunning(quiet.ID, 1)
	c.AwaitRunning(prints.ID, 1)
	ballast := filepath.Join(dir, "ballast")
	fillDisk(t, ballast)
	c.Await("the task that prints ends for the full disk", time.Minute, func() error {
		attempts, err := c.Client.Attempts(t.Context(), muster.TaskID{Job: prints.ID})
		if err == nil && (len(attempts) == 0 || attempts[0].Reason != muster.DiskFull) {
			err = fmt.Errorf("the attempts are %+v", attempts)
		}
		return err
	})
	w.Kill()
	c.StartWorker("w1", dir)
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	touch(t, releaseFile)
	for _, id := range []muster.JobID{quiet.ID, prints.ID} {
		if got := c.Wait(id, time.Minute); got.State != muster.JobSucceeded {
			t.Errorf("job %d ended as %s: %+v", id, got.State, c.Tasks(id)[0])
		}
	}
	if task := c.Tasks(quiet.ID)[0]; task.Attempt != 1 || c.Output(task.ID) != "survived\n" {
		t.Errorf("the quiet task: attempt %d, %q", task.Attempt, c.Output(task.ID))
	}
}
