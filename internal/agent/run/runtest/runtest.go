package runtest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/agent/run/process"
	"github.com/muster-dev/muster/internal/tasklog"
	"github.com/muster-dev/muster/internal/testkit"
)

// OpenFunc returns the executor under test for an environment.
type OpenFunc func(deps *process.Deps) (run.Executor, error)

// suite opens executors and starts their shims.
type suite struct {
	open    OpenFunc
	command []string
	skip    map[string]string
}

func (o *suite) run(t *testing.T, name string, f func(t *testing.T)) bool {
	t.Helper()
	return t.Run(name, func(t *testing.T) {
		t.Helper()
		if reason := o.skip[name]; reason != "" {
			t.Skip(reason)
		}
		f(t)
	})
}

// harness is one executor in its environment.
type harness struct {
	*Env
	x    run.Executor
	next atomic.Int64
}

func open(t *testing.T, o suite, configure ...func(*process.Deps)) *harness {
	t.Helper()
	b := &harness{Env: NewEnv(t, o.command...)}
	for _, f := range configure {
		f(b.Deps)
	}
	b.openExecutor(t, o)
	return b
}

func (b *harness) openExecutor(t *testing.T, o suite) {
	t.Helper()
	var err error
	if b.x, err = o.open(b.Deps); err != nil {
		t.Fatal(err)
	}
}

// restart restarts the worker and opens the executor again.
func (b *harness) restart(t *testing.T, o suite) {
	t.Helper()
	b.Restart(t)
	b.openExecutor(t, o)
}

// start runs a task in the background and returns its report through a channel.
func (b *harness) start(ctx context.Context, task *run.Task) <-chan muster.Report {
	out := make(chan muster.Report, 1)
	go func() { out <- b.x.Run(ctx, task, &Recorder{}) }()
	return out
}

// startUntil starts a task and waits until it has printed ready. The function that it returns cancels the task and returns its report.
func (b *harness) startUntil(t *testing.T, task *run.Task, ready string) (stop func(cause error) muster.Report) {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	t.Cleanup(func() { cancel(nil) })
	out := b.start(ctx, task)
	testkit.Await(t, "the task prints "+ready, func() bool {
		return strings.Contains(b.Output(t, task.Attempt, tasklog.Stdout), ready)
	})
	return func(cause error) muster.Report {
		t.Helper()
		cancel(cause)
		select {
		case r := <-out:
			return r
		case <-time.After(Timeout):
			t.Fatal("the task does not end")
			return muster.Report{}
		}
	}
}

func (b *harness) task(shell string) *run.Task {
	id := muster.AttemptID{Task: muster.TaskID{Job: 17, Num: int(b.next.Add(1))}, N: 1}
	return &run.Task{Attempt: id, Job: "j17", Spec: &muster.TaskSpec{Kind: b.x.Kind(), Run: &muster.Command{Shell: shell}}}
}

func (b *harness) checkpoint(task *run.Task) string {
	return filepath.Join(b.Deps.Dir, "checkpoints", b.x.Kind(), "job-"+task.Job+"."+strconv.Itoa(task.Attempt.Task.Num))
}

// resume creates the file that some tasks wait for.
func (b *harness) resume(t *testing.T) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(SharedDir(b.Deps), "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

func (b *harness) done(t *testing.T, task *run.Task) muster.Report {
	t.Helper()
	return b.record(t, task, &Recorder{})
}

// record is done with a recorder.
func (b *harness) record(t *testing.T, task *run.Task, recorder *Recorder) muster.Report {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*Timeout)
	defer cancel()
	r := b.x.Run(ctx, task, recorder)
	b.check(t, task, &r)
	return r
}

// check checks what must be true for every report.
func (b *harness) check(t *testing.T, task *run.Task, r *muster.Report) {
	t.Helper()
	if r.Attempt != task.Attempt || r.Outcome == muster.AttemptOpen || r.FinishedAt == 0 {
		t.Errorf("the report has no attempt, outcome or time: %+v", r)
	}
	if (r.Outcome == muster.AttemptSucceeded) != (r.Reason == muster.NoReason) {
		t.Errorf("outcome %q has reason %q", r.Outcome, r.Reason)
	}
	if size := b.LogEnd(t, task.Attempt); r.LogSize != size {
		t.Errorf("log_size is %d, the log has %d bytes", r.LogSize, size)
	}
	if running := b.runningProcs(t); running != 0 {
		t.Errorf("%d processes stay recorded", running)
	}
	// Empty folders may be pooled in a hidden folder.
	err := filepath.WalkDir(filepath.Join(b.Deps.Dir, "tasks"), func(path string, d fs.DirEntry, err error) error {
		rel := strings.TrimPrefix(path, b.Deps.Dir)
		if err != nil || !d.IsDir() || strings.Count(rel, "/") > 1 && !strings.HasPrefix(rel, "/tasks/.") {
			t.Errorf("%s stays behind: %v", path, err)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// wantOutput checks what a task printed to one stream.
func (b *harness) wantOutput(t *testing.T, task *run.Task, stream tasklog.Stream, want string) {
	t.Helper()
	if got := b.Output(t, task.Attempt, stream); got != want {
		t.Errorf("the log has %q, want %q", got, want)
	}
}

func want(t *testing.T, r muster.Report, outcome muster.Outcome, reason muster.Reason, message string) {
	t.Helper()
	if r.Outcome != outcome || r.Reason != reason || !strings.Contains(r.Message, message) {
		t.Errorf("got %s, %s, %q; want %s, %s, a message with %q", r.Outcome, r.Reason, r.Message, outcome, reason, message)
	}
}

func wantSuccess(t *testing.T, r muster.Report) {
	t.Helper()
	want(t, r, muster.AttemptSucceeded, muster.NoReason, "")
}

// Run tests that the executor fulfils the contract. command starts the shim; without one, the shim is part of this process.
func Run(t *testing.T, x OpenFunc, command ...string) {
	t.Helper()
	RunExcept(t, x, nil, command...)
}

// RunExcept is Run without some cases; skip maps their names to reasons.
func RunExcept(t *testing.T, x OpenFunc, skip map[string]string, command ...string) {
	t.Helper()
	o := suite{x, command, skip}
	o.run(t, "how a process ends is how the attempt ends", func(t *testing.T) { endings(t, o) })
	o.run(t, "what cannot be started says why", func(t *testing.T) { starts(t, o) })
	o.run(t, "a task is stopped and nothing of it survives", func(t *testing.T) { stops(t, o) })
	o.run(t, "output is kept as it was printed", func(t *testing.T) { output(t, o) })
	o.run(t, "a task sees its own environment only", func(t *testing.T) { environment(t, o) })
	o.run(t, "what a task leaves is taken", func(t *testing.T) { outputs(t, o) })
	o.run(t, "events of a task are reported", func(t *testing.T) { protocol(t, o) })
	o.run(t, "isolation, meter and devices are used", func(t *testing.T) { isolation(t, o) })
	if command != nil {
		o.run(t, "a restarted worker recovers a task", func(t *testing.T) { restarts(t, o) })
	}
}

func endings(t *testing.T, o suite) {
	t.Helper()
	b := open(t, o)
	o.run(t, "exit 0 is a success with usage and times", func(t *testing.T) {
		r := b.done(t, b.task("exit 0"))
		wantSuccess(t, r)
		if r.ExitCode == nil || *r.ExitCode != 0 || r.Usage == nil || r.Usage.WallSeconds <= 0 || r.StartedAt == 0 || r.FinishedAt < r.StartedAt {
			t.Errorf("%+v usage %+v", r, r.Usage)
		}
		if r.LogSize != 0 {
			t.Error("a silent task has a log")
		}
	})
	o.run(t, "another exit code is reported", func(t *testing.T) {
		r := b.done(t, b.task("exit 75"))
		want(t, r, muster.AttemptFailed, muster.ExitCode, "75")
		if r.ExitCode == nil || *r.ExitCode != 75 {
			t.Errorf("exit code %v", r.ExitCode)
		}
	})
	o.run(t, "a signal is reported by name", func(t *testing.T) {
		want(t, b.done(t, b.task("kill -SEGV $$")), muster.AttemptFailed, muster.Signal, "SIGSEGV")
	})
	o.run(t, "a list is executed without a shell", func(t *testing.T) {
		task := b.task("")
		task.Spec.Run = &muster.Command{Argv: []string{"echo", "$HOME", "a b"}}
		wantSuccess(t, b.done(t, task))
		b.wantOutput(t, task, tasklog.Stdout, "$HOME a b\n")
	})
	o.run(t, "standard input is empty", func(t *testing.T) {
		wantSuccess(t, b.done(t, b.task("! read x")))
	})
	o.run(t, "cpu time and memory of children count", func(t *testing.T) {
		r := b.done(t, b.task("i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done"))
		if r.Usage == nil || r.Usage.CPUSeconds <= 0 || r.Usage.MemoryPeak > 100<<20 {
			t.Errorf("usage of a small task %+v", r.Usage)
		}
		r = b.done(t, b.task("head -c 400000000 /dev/zero | tail -c 400000000 | wc -c"))
		if r.Usage == nil || r.Usage.MemoryPeak < 400_000_000 || r.Usage.MemoryPeak > 1<<30 {
			t.Errorf("usage of a big task %+v", r.Usage)
		}
	})
}

func starts(t *testing.T, o suite) {
	t.Helper()
	b := open(t, o)
	failing := func(argv []string, files map[string]string, code int, wantMsg string) {
		t.Helper()
		task := b.task("")
		task.Spec.Run = &muster.Command{Argv: argv}
		if files != nil {
			task.Spec.Files = b.Tree(files)
		}
		r := b.done(t, task)
		want(t, r, muster.AttemptFailed, muster.StartFailed, wantMsg)
		if r.StartedAt != 0 || r.ExitCode == nil || *r.ExitCode != code {
			t.Errorf("%v: start time %s and exit code %v, want none and %d", argv, r.StartedAt, r.ExitCode, code)
		}
	}
	failing([]string{"./train.sh"}, nil, run.ExitNotFound, "train.sh: no such file in the task's folder")
	failing([]string{"no-such-command"}, nil, run.ExitNotFound, "no such command on this worker")
	failing([]string{"./notes.txt"}, map[string]string{"notes.txt": "x"}, run.ExitNotExecutable, "not executable")
	failing([]string{"go.sh"}, map[string]string{"go.sh": "#!/bin/sh\n"}, run.ExitNotFound, "use ./go.sh")
	failing([]string{"./bad.sh"}, map[string]string{"bad.sh": "#!/no/such/interpreter\n"}, run.ExitNotFound, "interpreter")
	failing([]string{"./plain.sh"}, map[string]string{"plain.sh": "\x01\x02\x03"}, run.ExitNotExecutable, "is not a program for this machine")
	failing([]string{"./sub"}, map[string]string{"sub/x": ""}, run.ExitNotExecutable, "is a folder")

	task := b.task("true")
	task.Inputs = []muster.InputFile{{Path: "../escape", SHA256: b.Blob("x"), Size: 1}}
	want(t, b.done(t, task), muster.AttemptFailed, muster.TaskInvalid, "outside the task's folder")
	task = b.task("true")
	task.Inputs = []muster.InputFile{{Path: "model.pt", SHA256: strings.Repeat("0", 64), Size: 1}}
	want(t, b.done(t, task), muster.AttemptFailed, muster.FetchFailed, "model.pt")
}

// sleepCount makes the argument of each sleep unique, so that a test can find its process.
var sleepCount atomic.Int64

func sleepArg() string { return strconv.FormatInt(86400+int64(os.Getpid())*1000+sleepCount.Add(1), 10) }

// alive reports whether a process with this argument runs.
func alive(arg string) bool {
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline") // the pattern is right
	for _, f := range lines {
		if cmd, err := os.ReadFile(f); err == nil && strings.Contains(string(cmd), "\x00"+arg+"\x00") {
			return true
		}
	}
	return false
}

func wantDead(t *testing.T, args ...string) {
	t.Helper()
	for _, arg := range args {
		if alive(arg) {
			t.Errorf("the process with argument %s survives", arg)
		}
	}
}

func stops(t *testing.T, o suite) {
	t.Helper()
	stop := func(t *testing.T, b *harness, task *run.Task, ready string, cause *run.Stopped) muster.Report {
		t.Helper()
		r := b.startUntil(t, task, ready)(cause)
		b.check(t, task, &r)
		return r
	}
	cancelled := &run.Stopped{Outcome: muster.AttemptCancelled, Reason: muster.CancelledByUser, Message: "cancelled by ada"}

	o.run(t, "before it starts", func(t *testing.T) {
		b := open(t, o)
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(cancelled)
		task := b.task("echo never")
		r := b.x.Run(ctx, task, &Recorder{})
		b.check(t, task, &r)
		want(t, r, muster.AttemptCancelled, muster.CancelledByUser, "ada")
		if r.StartedAt != 0 || r.LogSize != 0 {
			t.Errorf("it ran: %+v", r)
		}
	})
	o.run(t, "by the signal that it asks for, with time to end", func(t *testing.T) {
		b := open(t, o)
		task := b.task("trap 'echo saved; exit 0' USR1; echo ready; while :; do sleep 0.05; done")
		task.Spec.Kill = muster.Kill{Signal: "SIGUSR1", Grace: muster.Duration(Timeout)}
		r := stop(t, b, task, "ready\n", cancelled)
		want(t, r, muster.AttemptCancelled, muster.CancelledByUser, "ada")
		b.wantOutput(t, task, tasklog.Stdout, "ready\nsaved\n")
	})
	o.run(t, "at its timeout, keeping what it left", func(t *testing.T) {
		b := open(t, o)
		task := b.task("echo part > $MUSTER_OUT/part.txt; echo ready; exec sleep 1000")
		r := stop(t, b, task, "ready\n", &run.Stopped{Outcome: muster.AttemptTimedOut, Reason: muster.Timeout, Message: "ran longer than 1s"})
		want(t, r, muster.AttemptTimedOut, muster.Timeout, "1s")
		if len(r.Artifacts) != 1 {
			t.Errorf("artifacts %v", r.Artifacts)
		}
	})
	o.run(t, "at the owner's timeout, if it has none", func(t *testing.T) {
		b := open(t, o, func(e *process.Deps) { e.TaskTimeout = muster.Duration(300 * time.Millisecond) })
		for _, own := range []muster.Duration{0, -1} {
			task := b.task("echo ready; exec sleep 1000")
			task.Spec.Timeout = own
			r := b.done(t, task)
			want(t, r, muster.AttemptTimedOut, muster.Timeout, "300ms")
			b.wantOutput(t, task, tasklog.System, "the owner of this worker limits tasks without a timeout to 300ms\n")
		}
		task := b.task("sleep 0.6")
		task.Spec.Timeout = muster.Duration(Timeout)
		wantSuccess(t, b.done(t, task))
	})
	o.run(t, "by SIGKILL if it ignores SIGTERM and forked away", func(t *testing.T) {
		b := open(t, o)
		one, two, three := sleepArg(), sleepArg(), sleepArg()
		task := b.task(fmt.Sprintf(`trap '' TERM
			(setsid sh -c 'trap "" TERM; sleep %s; :' &) &
			(env -i /usr/bin/setsid /bin/sh -c 'trap "" TERM; sleep %s; :' &) &
			sleep %s & sleep 0.3; echo ready; wait; while :; do sleep 1; done`, one, two, three))
		task.Spec.Kill.Grace = muster.Duration(200 * time.Millisecond)
		testkit.Await(t, "no process has the words yet", func() bool { return !alive(one) && !alive(two) && !alive(three) })
		want(t, stop(t, b, task, "ready\n", cancelled), muster.AttemptCancelled, muster.CancelledByUser, "")
		wantDead(t, one, two, three)
	})
	o.run(t, "although it would join the worker's own group", func(t *testing.T) {
		if _, err := exec.LookPath("perl"); err != nil {
			t.Skip("needs perl, to change groups")
		}
		b := open(t, o)
		sleep := sleepArg()
		task := b.task("exec perl -e '$| = 1; $SIG{TERM} = \"IGNORE\"; setpgrp(0, getpgrp(getppid())); print \"ready\\n\"; sleep 1000 while 1' " + sleep + " x")
		task.Spec.Kill.Grace = muster.Duration(100 * time.Millisecond)
		want(t, stop(t, b, task, "ready\n", cancelled), muster.AttemptCancelled, muster.CancelledByUser, "")
		wantDead(t, sleep)
	})
	o.run(t, "also what it leaves after a normal end", func(t *testing.T) {
		b := open(t, o)
		one, two, three := sleepArg(), sleepArg(), sleepArg()
		// The last one neither is in the group nor in the session nor has the mark, and holds stdout open.
		task := b.task(fmt.Sprintf(`sleep %s & setsid sleep %s & (env -i /usr/bin/setsid /bin/sleep %s &); sleep 0.3; echo done`, one, two, three))
		begun := time.Now()
		wantSuccess(t, b.done(t, task))
		if took := time.Since(begun); took > Timeout {
			t.Errorf("the report took %s", took)
		}
		wantDead(t, one, two, three)
	})
	o.run(t, "but not what another task runs", func(t *testing.T) {
		b := open(t, o)
		sleep := sleepArg()
		long := b.task(fmt.Sprintf("(env -i /usr/bin/setsid /bin/sleep %s &); sleep 0.3; echo ready; while :; do sleep 0.05; done", sleep))
		stop := b.startUntil(t, long, "ready\n")
		testkit.Await(t, "its daemon runs", func() bool { return alive(sleep) })
		b2 := &harness{Env: b.Env, x: b.x}
		b2.next.Store(1000)
		r := b.x.Run(t.Context(), b2.task("exit 0"), &Recorder{})
		wantSuccess(t, r)
		if !alive(sleep) {
			t.Error("the end of a task killed another task's daemon")
		}
		want(t, stop(cancelled), muster.AttemptCancelled, muster.CancelledByUser, "")
		wantDead(t, sleep)
	})
	o.run(t, "a full disk under the log ends it", func(t *testing.T) {
		b := open(t, o)
		if b.command != nil {
			t.Skip("a disk is filled within this process only")
		}
		b.FillDisk(fmt.Errorf("append: %w", syscall.ENOSPC))
		r := b.done(t, b.task("echo x; exec sleep 1000"))
		want(t, r, muster.AttemptFailed, muster.DiskFull, "")
		if !errors.Is(run.Failf(muster.WorkerInternal, "%w", syscall.ENOSPC).Err, syscall.ENOSPC) {
			t.Error("the cause is lost")
		}
	})
}
