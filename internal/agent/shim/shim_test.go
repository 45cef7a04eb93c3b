//go:build unix

package shim

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/bootclock"
	"github.com/muster-dev/muster/internal/tasklog"
	"github.com/muster-dev/muster/internal/testkit"
)

// Tests of a shim in the worker's process and of one in its own process.

func TestExitOfAProcess(t *testing.T) {
	forEachMode(t, func(t *testing.T, m mode) {
		t.Helper()
		dir := t.TempDir()
		c := openClient(t, dir, m)
		for text, want := range map[string]run.Exit{
			"exit 0":         {Code: 0},
			"exit 75":        {Code: 75},
			"kill -SEGV $$":  {Code: 139, Signal: "SIGSEGV"},
			"kill -KILL $$":  {Code: 137, Signal: "SIGKILL"},
			"sleep 1000 & :": {Code: 0},
		} {
			s := shellTask(t, text)
			p, _ := startTask(t, c, s)
			x := waitTask(t, p)
			if x.Code != want.Code || x.Signal != want.Signal || x.Stopped != nil || x.Survivors != 0 || x.Wall <= 0 || x.At < p.Started() {
				t.Errorf("%s: %+v", text, x)
			}
			if p.Pid().PID == 0 || p.Pid().EnvTag != s.EnvTag || m.command != nil && p.Pid().StartTicks == 0 {
				t.Errorf("%s: its process is %+v", text, p.Pid())
			}
			c.Forget(s.Attempt)
		}
	})
}

func TestFailedStartIsExplainedAndLeavesNothing(t *testing.T) {
	forEachMode(t, func(t *testing.T, m mode) {
		t.Helper()
		dir := t.TempDir()
		c := openClient(t, dir, m)
		s := shellTask(t, "")
		s.Path = filepath.Join(s.Dir, "plain")
		if err := os.WriteFile(s.Path, []byte("\x01\x02"), 0o700); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Start(t.Context(), s, newFakeReporter()); err == nil || !strings.Contains(err.Error(), "is not a program for this machine") {
			t.Errorf("error: %v", err)
		}
		s.Path, s.Argv = "/bin/sh", []string{"sh", "-c", "exit 3"}
		p, _ := startTask(t, c, s) // the same attempt
		if x := waitTask(t, p); x.Code != 3 {
			t.Errorf("%+v", x)
		}
		if _, err := c.Start(t.Context(), s, newFakeReporter()); err == nil || !strings.Contains(err.Error(), "has already been started") {
			t.Errorf("an attempt is started twice: %v", err)
		}
	})
}

// sizeOf returns the size of records in a log, in bytes.
func sizeOf(all []tasklog.Record) (size int64) {
	for _, r := range all {
		size += int64(len(tasklog.AppendRecord(nil, r)))
	}
	return size
}

func TestLogHasOneWriter(t *testing.T) {
	forEachMode(t, func(t *testing.T, m mode) {
		t.Helper()
		dir := t.TempDir()
		c := openClient(t, dir, m)
		logs, err := tasklog.OpenDir(filepath.Join(dir, "logs"))
		if err != nil {
			t.Fatal(err)
		}
		defer logs.Close()
		s := shellTask(t, "echo task; while [ ! -e go ]; do sleep 0.02; done; echo end")
		before := tasklog.AppendRecord(nil, tasklog.Record{Stream: tasklog.System, At: time.Now(), Data: []byte("worker\n")})
		if _, err := logs.Append(t.Context(), s.Attempt, 0, before); err != nil {
			t.Fatal(err)
		}
		for _, wrong := range []int64{0, int64(len(before)) - 1, int64(len(before)) + 1} {
			s.LogSize = wrong
			if _, err := c.Start(t.Context(), s, newFakeReporter()); err == nil || !strings.Contains(err.Error(), "another program writes") {
				t.Errorf("a log with a wrong size of %d bytes was accepted: %v", wrong, err)
			}
		}
		s.LogSize = int64(len(before))
		p, k := startTask(t, c, s)
		testkit.Await(t, "the log grows", func() bool { _, size := k.last(); return size > s.LogSize })
		p.AppendLog(tasklog.Usage, []byte(`{"at":1}`))
		if size := p.LogSize(); size != sizeOf(records(t, dir, s.Attempt)) {
			t.Errorf("the log has %d bytes, reported are %d", sizeOf(records(t, dir, s.Attempt)), size)
		}
		if err := os.WriteFile(filepath.Join(s.Dir, "go"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		waitTask(t, p)
		p.AppendLog(tasklog.System, []byte("after\n"))
		size := p.LogSize()
		p.SaveReport(&muster.Report{Attempt: s.Attempt, Outcome: muster.AttemptSucceeded})
		p.AppendLog(tasklog.System, []byte("too late\n"))
		var got []string
		all := records(t, dir, s.Attempt)
		for _, r := range all {
			got = append(got, string(r.Data))
		}
		total := sizeOf(all)
		if d := cmp.Diff([]string{"worker\n", "task\n", `{"at":1}`, "end\n", "after\n"}, got); d != "" {
			t.Error(d)
		}
		if total != size || p.LogSize() != size {
			t.Errorf("the log has %d bytes, reported are %d and %d", total, size, p.LogSize())
		}
	})
}

func TestSandboxDenialsAreLogged(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("there are sandboxes on Linux only")
	}
	forEachMode(t, func(t *testing.T, m mode) {
		t.Helper()
		dir, owners := t.TempDir(), t.TempDir()
		c := openClient(t, dir, m)
		secret := filepath.Join(owners, "data")
		if err := os.WriteFile(secret, []byte("the owner's"), 0o600); err != nil {
			t.Fatal(err)
		}
		for text, explained := range map[string]bool{
			"cat " + secret:              true,
			"cat " + secret + "; exit 0": false, // the task handled the error
			"cat nothing":                false,
		} {
			s := shellTask(t, text)
			s.Isolation = &run.IsolationSpec{NoNewPrivileges: true, Sandbox: &run.Sandbox{Read: []string{"/bin", "/lib", "/usr", "/etc"}, Write: []string{s.Dir, "/dev/null"}}}
			if _, err := os.Stat("/lib64"); err == nil {
				s.Isolation.Sandbox.Read = append(s.Isolation.Sandbox.Read, "/lib64")
			}
			p, err := c.Start(t.Context(), s, newFakeReporter())
			if err != nil && strings.Contains(err.Error(), "no Landlock") {
				t.Skipf("no sandbox on this system: %v", err)
			} else if err != nil {
				t.Fatal(err)
			}
			waitTask(t, p)
			if got := printed(t, dir, s.Attempt, tasklog.System); strings.Contains(got, "denies tasks access to "+secret) != explained || !explained && got != "" {
				t.Errorf("%s: Muster says %q, and the task %q", text, got, printed(t, dir, s.Attempt, tasklog.Stderr))
			}
		}
	})
}

func TestStop(t *testing.T) {
	forEachMode(t, func(t *testing.T, m mode) {
		t.Helper()
		dir := t.TempDir()
		c := openClient(t, dir, m)
		first := &run.Stopped{Outcome: muster.AttemptCancelled, Reason: muster.CancelledByUser, Message: "by ada"}
		second := &run.Stopped{Outcome: muster.AttemptLost, Reason: muster.WorkerShutdown}

		s := shellTask(t, "trap 'echo usr1; exit 5' USR1; trap 'echo term' TERM; echo ready; while :; do sleep 0.02; done")
		s.Kill.Signal = "SIGUSR1"
		p, _ := startTask(t, c, s)
		waitReady(t, dir, s)
		p.Stop(first, muster.Kill{})
		if x := waitTask(t, p); x.Code != 5 || x.Stopped == nil || *x.Stopped != *first {
			t.Errorf("%+v", x)
		}

		s = shellTask(t, "trap 'echo usr2' USR2; trap '' TERM; echo ready; while :; do sleep 0.02; done")
		s.Kill.Grace = muster.Duration(time.Hour)
		p, _ = startTask(t, c, s)
		waitReady(t, dir, s)
		p.Stop(first, muster.Kill{Signal: "SIGUSR2"}) // not SIGHUP: below nohup no shell traps that
		defer func(attempt muster.AttemptID) {
			if t.Failed() {
				t.Logf("the task printed %q", printed(t, dir, attempt, tasklog.Stdout))
			}
		}(s.Attempt)
		testkit.Await(t, "its signal", func() bool { return printed(t, dir, s.Attempt, tasklog.Stdout) == "ready\nusr2\n" })
		p.Stop(second, muster.Kill{Grace: muster.Duration(time.Millisecond)})
		if x := waitTask(t, p); x.Signal != "SIGKILL" || x.Stopped == nil || *x.Stopped != *first || x.Survivors != 0 {
			t.Errorf("the first reason and the shorter grace count: %+v", x)
		}
	})
}

// waitReady waits until the task prints "ready".
func waitReady(t *testing.T, dir string, s *run.StartSpec) {
	t.Helper()
	testkit.Await(t, "the task is ready", func() bool { return strings.HasPrefix(printed(t, dir, s.Attempt, tasklog.Stdout), "ready\n") })
}

func TestTimeoutAndLeaseAreKept(t *testing.T) {
	forEachMode(t, func(t *testing.T, m mode) {
		t.Helper()
		c := openClient(t, t.TempDir(), m)
		s := shellTask(t, "exec sleep 1000")
		s.Timeout = 50 * time.Millisecond
		p, _ := startTask(t, c, s)
		if x := waitTask(t, p); x.Stopped == nil || x.Stopped.Outcome != muster.AttemptTimedOut || x.Stopped.Reason != muster.Timeout || x.Signal != "SIGTERM" {
			t.Errorf("%+v", x)
		}
		s = shellTask(t, "exec sleep 1000")
		s.Lease = time.Millisecond
		p, _ = startTask(t, c, s)
		if x := waitTask(t, p); x.Stopped == nil || x.Stopped.Outcome != muster.AttemptLost || x.Stopped.Reason != muster.WorkerLost {
			t.Errorf("%+v", x)
		}
		// A contact in the future represents a server in permanent contact.
		c.SetLastContact(bootclock.Now() + time.Hour)
		s = shellTask(t, "sleep 1; exit 4")
		s.Lease = time.Millisecond
		p, _ = startTask(t, c, s)
		if x := waitTask(t, p); x.Stopped != nil || x.Code != 4 {
			t.Errorf("%+v", x)
		}
		if c.LastContact() == 0 {
			t.Error("the contact is lost")
		}
	})
}

func TestFrozenTaskCanBeStopped(t *testing.T) {
	if !outlives {
		t.Skip("the state of a process is available only on Linux")
	}
	forEachMode(t, func(t *testing.T, m mode) {
		t.Helper()
		dir := t.TempDir()
		c := openClient(t, dir, m)
		s := shellTask(t, "trap 'echo saved; exit 0' TERM; setsid sh -c 'echo $$ > child; while :; do sleep 0.02; done' & echo ready; while :; do sleep 0.02; done")
		p, _ := startTask(t, c, s)
		waitReady(t, dir, s)
		var child int
		testkit.Await(t, "the child's PID", func() bool {
			b, _ := os.ReadFile(filepath.Join(s.Dir, "child"))
			child, _ = strconv.Atoi(strings.TrimSpace(string(b)))
			return child > 0
		})
		for _, on := range []bool{true, true, false, true} {
			if err := c.Freeze(s.Attempt, on); err != nil {
				t.Fatal(err)
			}
			for _, pid := range []int{p.Pid().PID, child} {
				testkit.Await(t, fmt.Sprintf("process %d stopped: %t", pid, on), func() bool {
					// A shell that waits for its child to execute a program stops with it.
					s := procState(pid)
					return (s == 'T' || s == 'D') == on
				})
			}
		}
		p.Stop(&run.Stopped{Outcome: muster.AttemptFailed, Reason: muster.Preempted}, muster.Kill{})
		if x := waitTask(t, p); x.Code != 0 || x.Survivors != 0 {
			t.Errorf("%+v", x)
		}
		if got := printed(t, dir, s.Attempt, tasklog.Stdout); got != "ready\nsaved\n" {
			t.Errorf("it printed %q", got)
		}
		if err := c.Freeze(s.Attempt, true); err == nil {
			t.Error("an ended attempt can be frozen")
		}
		if err := c.Freeze(muster.AttemptID{Task: muster.TaskID{Job: 9}, N: 1}, true); err == nil {
			t.Error("an unknown attempt can be frozen")
		}
	})
}

func TestForgetKillsWhatRuns(t *testing.T) {
	forEachMode(t, func(t *testing.T, m mode) {
		t.Helper()
		dir := t.TempDir()
		c := openClient(t, dir, m)
		s := shellTask(t, "trap '' TERM; echo ready; while :; do sleep 0.02; done")
		s.Kill.Grace = muster.Duration(time.Hour)
		p, _ := startTask(t, c, s)
		waitReady(t, dir, s)
		c.Forget(s.Attempt, muster.AttemptID{Task: muster.TaskID{Job: 9}, N: 1})
		testkit.Await(t, "the end of the process", func() bool { return syscall.Kill(p.Pid().PID, 0) != nil })
	})
}

func TestOutputOfManyTasksIsComplete(t *testing.T) {
	forEachMode(t, func(t *testing.T, m mode) {
		t.Helper()
		dir := t.TempDir()
		c := openClient(t, dir, m)
		const tasks, lines = 8, 3000
		var all []*run.StartSpec
		var procs []run.Proc
		for range tasks {
			s := shellTask(t, fmt.Sprintf("i=0; while [ $i -lt %d ]; do echo line $i; i=$((i+1)); done; echo '::muster progress=1 last=%d'", lines, lines))
			p, _ := startTask(t, c, s)
			all, procs = append(all, s), append(procs, p)
		}
		var want strings.Builder
		for i := range lines {
			fmt.Fprintf(&want, "line %d\n", i)
		}
		for i, p := range procs {
			waitTask(t, p)
			if got := printed(t, dir, all[i].Attempt, tasklog.Stdout); got != want.String() {
				t.Errorf("task %d printed %d bytes, want %d", i, len(got), want.Len())
			}
			inOrder(t, records(t, dir, all[i].Attempt))
		}
	})
}

// inOrder checks that no record is older than the one before of its stream. Streams are written concurrently.
func inOrder(t *testing.T, all []tasklog.Record) {
	t.Helper()
	last := map[tasklog.Stream]tasklog.Record{}
	for i, r := range all {
		if before := last[r.Stream]; r.At.Before(before.At) {
			t.Fatalf("record %d is of %s, the one before of %s", i, r.At, before.At)
		}
		last[r.Stream] = r
	}
}
