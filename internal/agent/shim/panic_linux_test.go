package shim

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/docker"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/agent/shim/proctree"
	"github.com/muster-dev/muster/internal/tasklog"
	"github.com/muster-dev/muster/internal/testkit"
)

// faulty is a log with a bug: it panics when the data has certain texts, and for a certain attempt already when its log is opened.
type faulty struct{ run.Logs }

const (
	bugText  = "trigger the bug"
	bugStart = 777
)

func (f faulty) Append(ctx context.Context, a muster.AttemptID, offset int64, data []byte) (int64, error) {
	if bytes.Contains(data, []byte(bugText)) || bytes.Contains(data, []byte("reported once")) || a.N == bugStart {
		panic("a bug in the log")
	}
	return f.Logs.Append(ctx, a, offset, data)
}

// faultyShim is Main with such logs.
func faultyShim(args []string) error {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	return runShim(&stateDir{path: args[0], data: args[1]}, args[2], log, func(s *server) {
		s.logs = faulty{s.logs}
		var once sync.Once
		s.wrapConn = func(conn net.Conn) net.Conn { return faultyConn{conn, &once} }
	})
}

// faultyConn panics once when a certain text is sent to the worker.
type faultyConn struct {
	net.Conn

	once *sync.Once
}

const bugFrameText = "the connection breaks now"

func (f faultyConn) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte(bugFrameText)) {
		f.once.Do(func() { panic("a bug in the connection") })
	}
	return f.Conn.Write(b)
}

// A panic while a shim sends to its worker fails no attempt: the worker reconnects, and receives what it missed.
func TestPanicOfTheConnectionFailsNoAttempt(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := openClient(t, dir, mode{command: []string{os.Args[0], argFaultyShim}})
	other := shellTask(t, "echo begin; while [ ! -e go ]; do sleep 0.02; done; echo end; exit 3")
	bystander, _ := startTask(t, c, other)
	pid := stateDirOf(t, dir).pid()
	ends, _ := startTask(t, c, shellTask(t, "exit 5"))
	stays, _ := startTask(t, c, shellTask(t, "exec sleep 1000"))

	s := shellTask(t, `echo '::muster step="`+bugFrameText+`"'; exit 4`)
	p, k := startTask(t, c, s)
	if x := waitTask(t, p); x.Code != 4 || x.Stopped != nil {
		t.Errorf("the task whose end was sent over the broken connection ended with %+v, stopped by %+v", x, x.Stopped)
	}
	if got, _ := k.last(); got.Step == nil || *got.Step != bugFrameText {
		t.Errorf("progress %+v", got)
	}
	if x := waitTask(t, ends); x.Code != 5 || x.Stopped != nil {
		t.Errorf("a task that had ended was reported with %+v", x)
	}
	more, _ := startTask(t, c, shellTask(t, "exit 6"))
	if x := waitTask(t, more); x.Code != 6 {
		t.Errorf("the next task ended with %+v", x)
	}
	stays.Stop(&run.Stopped{Outcome: muster.AttemptCancelled, Message: "no need"}, muster.Kill{Signal: "SIGTERM"})
	if x := waitTask(t, stays); x.Stopped == nil || x.Stopped.Outcome != muster.AttemptCancelled {
		t.Errorf("a task that was stopped ended with %+v", x)
	}
	if err := os.WriteFile(other.Dir+"/go", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if x := waitTask(t, bystander); x.Code != 3 || x.Stopped != nil {
		t.Errorf("another task ended with %+v, stopped by %+v", x, x.Stopped)
	}
	if got := printed(t, dir, other.Attempt, tasklog.Stdout); got != "begin\nend\n" {
		t.Errorf("the output is %q", got)
	}
	if now := stateDirOf(t, dir).pid(); now != pid || !isRunning(pid) {
		t.Errorf("the shim is %+v, want the previous one, %+v", now, pid)
	}
	b, err := os.ReadFile(stateDirOf(t, dir).logPath())
	if err != nil || !bytes.Contains(b, []byte("faultyConn.Write")) || !bytes.Contains(b, []byte("a bug in the connection")) {
		t.Errorf("the log of the shim does not have the panic: %v\n%s", err, b)
	}
}

// A panic in the work for one attempt fails only that attempt, as worker_internal. Its earlier output is kept, and all of its processes are
// killed.
func TestPanicFailsOneAttempt(t *testing.T) { //nolint:tparallel // what follows waits for the group of subtests
	t.Parallel()
	dir := t.TempDir()
	c := openClient(t, dir, mode{command: []string{os.Args[0], argFaultyShim}})
	other := shellTask(t, "echo begin; while [ ! -e go ]; do sleep 0.02; done; echo end; exit 3")
	bystander, _ := startTask(t, c, other)
	pid := stateDirOf(t, dir).pid()

	stuck := "trap '' TERM; setsid sleep 1000 & echo before; "
	t.Run("bugs", func(t *testing.T) {
		for name, text := range map[string]string{
			"in the reading of its output": stuck + "sleep 0.2; echo " + bugText + "; sleep 1000",
			"in the watch of the task":     stuck + "sleep 0.2; echo nonsense >>events; sleep 1000",
			"at the end of the task":       "echo before; sleep 0.2; printf nonsense >>events; echo >>events",
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				s := shellTask(t, text)
				p, _ := startTask(t, c, s)
				checkFailed(t, waitTask(t, p))
				if got := printed(t, dir, s.Attempt, tasklog.Stdout); !strings.HasPrefix(got, "before\n") {
					t.Errorf("its log is %q", got)
				}
				testkit.Await(t, "the end of all its processes", func() bool { return len(taggedPIDs(s.EnvTag)) == 0 })
			})
		}
		t.Run("in a record of the worker", func(t *testing.T) {
			t.Parallel()
			s := shellTask(t, stuck+"sleep 1000")
			p, k := startTask(t, c, s)
			testkit.Await(t, "output", func() bool { _, size := k.last(); return size > 0 })
			p.AppendLog(tasklog.System, []byte(bugText))
			checkFailed(t, waitTask(t, p))
			testkit.Await(t, "the end of all its processes", func() bool { return len(taggedPIDs(s.EnvTag)) == 0 })
		})
		t.Run("in the start of the task", func(t *testing.T) {
			t.Parallel()
			s := shellTask(t, "sleep 1000")
			s.Attempt.N = bugStart
			_, err := c.Start(t.Context(), s, newFakeReporter())
			if err == nil || !strings.Contains(err.Error(), "a bug in the log") {
				t.Errorf("%v", err)
			}
			if left := taggedPIDs(s.EnvTag); len(left) > 0 {
				t.Errorf("processes %v remain", left)
			}
		})
	})

	if err := os.WriteFile(other.Dir+"/go", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if x := waitTask(t, bystander); x.Code != 3 || x.Stopped != nil {
		t.Errorf("another task ended with %+v", x)
	}
	if got := printed(t, dir, other.Attempt, tasklog.Stdout); got != "begin\nend\n" {
		t.Errorf("the output is %q", got)
	}
	if now := stateDirOf(t, dir).pid(); now != pid || !isRunning(pid) {
		t.Errorf("the shim is %+v, want the previous one, %+v", now, pid)
	}
	b, err := os.ReadFile(stateDirOf(t, dir).logPath())
	if err != nil || !bytes.Contains(b, []byte("faulty.Append")) || !bytes.Contains(b, []byte("a bug in the log")) {
		t.Errorf("the log of the shim does not have the panic: %v\n%s", err, b)
	}
}

func checkFailed(t *testing.T, x *run.Exit) {
	t.Helper()
	if x.Stopped == nil || x.Stopped.Outcome != muster.AttemptFailed || x.Stopped.Reason != muster.WorkerInternal || !strings.Contains(x.Stopped.Message, "a bug in the log") {
		t.Errorf("it ended with %+v, stopped by %+v", x, x.Stopped)
	}
}

// panickingWorkload is a workload whose Wait panics.
type panickingWorkload struct {
	workload
	killed bool
}

func (*panickingWorkload) Wait() proctree.ExitStatus { panic("a bug in the workload") }
func (b *panickingWorkload) Abort() proctree.ExitStatus {
	b.killed = true
	return proctree.ExitStatus{Code: 137, Killed: true}
}

// A task whose Wait panics is killed, and fails as worker_internal.
func TestPanicWhileWaitingForTheEnd(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	s := &server{log: slog.New(slog.NewTextHandler(&out, nil))}
	b := &panickingWorkload{}
	a := &attempt{server: s, spec: shellTask(t, ""), wake: make(chan struct{}, 1), workload: b, started: time.Now()}
	if x := a.waitExit(); x.Code != 137 || !b.killed {
		t.Errorf("%+v", x)
	}
	if a.panicked == nil || a.stopped != a.panicked || a.panicked.Reason != muster.WorkerInternal || a.killAt.IsZero() {
		t.Errorf("%+v, stopped by %+v", a.panicked, a.stopped)
	}
	if !strings.Contains(out.String(), "panickingWorkload") || !strings.Contains(out.String(), a.spec.Attempt.String()) {
		t.Errorf("logged is %s", out.String())
	}
}

// A container is killed when the shim panics while it reads the output.
func TestPanicKillsTheContainer(t *testing.T) {
	dir := t.TempDir()
	c := openClient(t, dir, mode{command: []string{os.Args[0], argFaultyShim}})
	s := containerTask(t, "echo before; sleep 1; echo "+bugText+"; sleep 1000")
	p, _ := startTask(t, c, s)
	checkFailed(t, waitTask(t, p))
	if got := printed(t, dir, s.Attempt, tasklog.Stdout); got != "before\n" {
		t.Errorf("its log is %q", got)
	}
	e, err := docker.Open(s.Container.Engine)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if st, err := e.State(t.Context(), s.Container.ID); err != nil || st.Running {
		t.Errorf("state %+v: %v", st, err)
	}
}
