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
	"github.com/muster-dev/muster/internal/agent/shim/kin"
	"github.com/muster-dev/muster/internal/tasklog"
)

// faulty is a bug: it panics when what is written has certain words in it, and in an attempt with a certain number
// already when its log is taken over.
type faulty struct{ run.Logs }

const (
	bugWord  = "trigger the bug"
	bugStart = 777
)

func (f faulty) Append(ctx context.Context, a muster.AttemptID, offset int64, data []byte) (int64, error) {
	if bytes.Contains(data, []byte(bugWord)) || bytes.Contains(data, []byte("was not understood")) || a.N == bugStart {
		panic("a bug in the log")
	}
	return f.Logs.Append(ctx, a, offset, data)
}

// faultyShim is Main with such logs.
func faultyShim(args []string) error {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	return live(&home{dir: args[0], data: args[1]}, args[2], log, func(s *server) {
		s.logs = faulty{s.logs}
		var once sync.Once
		s.dress = func(conn net.Conn) net.Conn { return faultyConn{conn, &once} }
	})
}

// faultyConn panics once when a certain word is sent to the worker.
type faultyConn struct {
	net.Conn

	once *sync.Once
}

const bugSent = "the connection breaks now"

func (f faultyConn) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte(bugSent)) {
		f.once.Do(func() { panic("a bug in the connection") })
	}
	return f.Conn.Write(b)
}

// A bug in what a shim sends to its worker fails no attempt: the worker connects again, and hears what it missed.
func TestAPanicOfTheConnectionFailsNoAttempt(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := openClient(t, dir, mode{command: []string{os.Args[0], beFaultyShim}})
	other := shell(t, "echo begin; while [ ! -e go ]; do sleep 0.02; done; echo end; exit 3")
	bystander, _ := begin(t, c, other)
	pid := homeOf(t, dir).owner()
	ends, _ := begin(t, c, shell(t, "exit 5"))
	stays, _ := begin(t, c, shell(t, "exec sleep 1000"))

	s := shell(t, `echo '::muster step="`+bugSent+`"'; exit 4`)
	p, k := begin(t, c, s)
	if x := wait(t, p); x.Code != 4 || x.Stopped != nil {
		t.Errorf("the task whose end was told by the broken connection ended with %+v, stopped by %+v", x, x.Stopped)
	}
	if got, _ := k.seen(); got.Step == nil || *got.Step != bugSent {
		t.Errorf("it said %+v", got)
	}
	if x := wait(t, ends); x.Code != 5 || x.Stopped != nil {
		t.Errorf("a task that had ended did with %+v", x)
	}
	more, _ := begin(t, c, shell(t, "exit 6"))
	if x := wait(t, more); x.Code != 6 {
		t.Errorf("the next task ended with %+v", x)
	}
	stays.Stop(&run.Stopped{Outcome: muster.AttemptCancelled, Message: "no need"}, muster.Kill{Signal: "SIGTERM"})
	if x := wait(t, stays); x.Stopped == nil || x.Stopped.Outcome != muster.AttemptCancelled {
		t.Errorf("a task that was stopped ended with %+v", x)
	}
	if err := os.WriteFile(other.Dir+"/go", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if x := wait(t, bystander); x.Code != 3 || x.Stopped != nil {
		t.Errorf("another task ended with %+v, stopped by %+v", x, x.Stopped)
	}
	if got := printed(t, dir, other.Attempt, tasklog.Stdout); got != "begin\nend\n" {
		t.Errorf("it printed %q", got)
	}
	if now := homeOf(t, dir).owner(); now != pid || !runs(pid) {
		t.Errorf("the shim is %+v, and was %+v", now, pid)
	}
	b, err := os.ReadFile(homeOf(t, dir).logPath())
	if err != nil || !bytes.Contains(b, []byte("faultyConn.Write")) || !bytes.Contains(b, []byte("a bug in the connection")) {
		t.Errorf("the log of the shim does not tell of the bug: %v\n%s", err, b)
	}
}

// A bug that one attempt meets in the shim fails that attempt alone, and is told as the worker's fault. All that
// it printed before is kept, and nothing of it is left.
func TestAPanicFailsOneAttempt(t *testing.T) { //nolint:tparallel // what follows waits for the group of subtests
	t.Parallel()
	dir := t.TempDir()
	c := openClient(t, dir, mode{command: []string{os.Args[0], beFaultyShim}})
	other := shell(t, "echo begin; while [ ! -e go ]; do sleep 0.02; done; echo end; exit 3")
	bystander, _ := begin(t, c, other)
	pid := homeOf(t, dir).owner()

	stuck := "trap '' TERM; setsid sleep 1000 & echo before; "
	t.Run("bugs", func(t *testing.T) {
		for name, text := range map[string]string{
			"in the reading of its output": stuck + "sleep 0.2; echo " + bugWord + "; sleep 1000",
			"in the watch of the task":     stuck + "sleep 0.2; echo nonsense >>events; sleep 1000",
			"at the end of the task":       "echo before; sleep 0.2; printf nonsense >>events; echo >>events",
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				s := shell(t, text)
				p, _ := begin(t, c, s)
				checkFailed(t, wait(t, p))
				if got := printed(t, dir, s.Attempt, tasklog.Stdout); !strings.HasPrefix(got, "before\n") {
					t.Errorf("its log is %q", got)
				}
				await(t, "nothing of it is left", func() bool { return len(marks(s.Mark)) == 0 })
			})
		}
		t.Run("in a word of the worker", func(t *testing.T) {
			t.Parallel()
			s := shell(t, stuck+"sleep 1000")
			p, k := begin(t, c, s)
			await(t, "it prints", func() bool { _, size := k.seen(); return size > 0 })
			p.Record(tasklog.System, []byte(bugWord))
			checkFailed(t, wait(t, p))
			await(t, "nothing of it is left", func() bool { return len(marks(s.Mark)) == 0 })
		})
		t.Run("in the start of the task", func(t *testing.T) {
			t.Parallel()
			s := shell(t, "sleep 1000")
			s.Attempt.N = bugStart
			_, err := c.Start(t.Context(), s, newSink())
			if err == nil || !strings.Contains(err.Error(), "a bug in the log") {
				t.Errorf("%v", err)
			}
			if left := marks(s.Mark); len(left) > 0 {
				t.Errorf("processes %v are left", left)
			}
		})
	})

	if err := os.WriteFile(other.Dir+"/go", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if x := wait(t, bystander); x.Code != 3 || x.Stopped != nil {
		t.Errorf("another task ended with %+v", x)
	}
	if got := printed(t, dir, other.Attempt, tasklog.Stdout); got != "begin\nend\n" {
		t.Errorf("it printed %q", got)
	}
	if now := homeOf(t, dir).owner(); now != pid || !runs(pid) {
		t.Errorf("the shim is %+v, and was %+v", now, pid)
	}
	b, err := os.ReadFile(homeOf(t, dir).logPath())
	if err != nil || !bytes.Contains(b, []byte("faulty.Append")) || !bytes.Contains(b, []byte("a bug in the log")) {
		t.Errorf("the log of the shim does not tell of the bug: %v\n%s", err, b)
	}
}

func checkFailed(t *testing.T, x *run.Exit) {
	t.Helper()
	if x.Stopped == nil || x.Stopped.Outcome != muster.AttemptFailed || x.Stopped.Reason != muster.WorkerInternal || !strings.Contains(x.Stopped.Message, "a bug in the log") {
		t.Errorf("it ended with %+v, stopped by %+v", x, x.Stopped)
	}
}

// bodyThatPanics does so when it is waited for.
type bodyThatPanics struct {
	body
	killed bool
}

func (*bodyThatPanics) Wait() kin.Ended { panic("a bug in the body") }
func (b *bodyThatPanics) Abandon() kin.Ended {
	b.killed = true
	return kin.Ended{Code: 137, Killed: true}
}

// A task whose end cannot be awaited is killed, and ends as the worker's fault.
func TestAPanicWhileTheEndIsAwaited(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	s := &server{log: slog.New(slog.NewTextHandler(&out, nil))}
	b := &bodyThatPanics{}
	a := &attempt{server: s, s: shell(t, ""), poke: make(chan struct{}, 1), body: b, started: time.Now()}
	if x := a.await(); x.Code != 137 || !b.killed {
		t.Errorf("%+v", x)
	}
	if a.failed == nil || a.stopped != a.failed || a.failed.Reason != muster.WorkerInternal || a.killAt.IsZero() {
		t.Errorf("%+v, stopped by %+v", a.failed, a.stopped)
	}
	if !strings.Contains(out.String(), "bodyThatPanics") || !strings.Contains(out.String(), a.s.Attempt.String()) {
		t.Errorf("logged is %s", out.String())
	}
}

// A container is killed when the shim meets a bug in what it prints.
func TestAPanicKillsTheContainer(t *testing.T) {
	dir := t.TempDir()
	c := openClient(t, dir, mode{command: []string{os.Args[0], beFaultyShim}})
	s := box(t, "echo before; sleep 1; echo "+bugWord+"; sleep 1000")
	p, _ := begin(t, c, s)
	checkFailed(t, wait(t, p))
	if got := printed(t, dir, s.Attempt, tasklog.Stdout); got != "before\n" {
		t.Errorf("its log is %q", got)
	}
	e, err := docker.Open(s.Container.Engine)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if st, err := e.State(t.Context(), s.Container.ID); err != nil || st.Running {
		t.Errorf("it is %+v: %v", st, err)
	}
}
