//go:build linux

package containerrun

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/docker"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/agent/shim/proctree"
	"github.com/muster-dev/muster/internal/mustertest/containertest"
)

// counting prints lines until a file exists, and then exits with a code.
const counting = `trap 'echo asked; exit 0' TERM
i=0; while [ ! -e /muster/go ]; do i=$((i+1)); echo line $i; echo err $i >&2; sleep 0.01; done; echo end; exit `

// ownEngine is an engine of one test, and a folder of its container.
type ownEngine struct {
	*testEngine

	d   *containertest.Daemon
	dir string
}

func newOwnEngine(t *testing.T, flags ...string) *ownEngine {
	t.Helper()
	d := containertest.StartDaemon(t, flags...)
	return &ownEngine{engineAt(t, d.Host()), d, t.TempDir()}
}

// count starts a container that counts, and waits for its first lines.
func (s *ownEngine) count(code int) (*testRun, *run.Container) {
	s.t.Helper()
	ctr := s.create(func(p *docker.ContainerSpec) { p.Mounts = []docker.Mount{{Source: s.dir, Target: "/muster"}} }, "sh", "-c", counting+strconv.Itoa(code))
	c := runContainer(s.t, ctr, testTimeouts)
	c.await("line 20\n")
	return c, ctr
}

// finish makes the container exit.
func (s *ownEngine) finish() {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, "go"), nil, 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// waitProcess waits until a process has ended.
func waitProcess(t *testing.T, p run.Pid) {
	t.Helper()
	eventually(t, "the end of the process", func() bool { return !proctree.Alive(p) })
}

// checkComplete checks that all output in the engine's log was received: an engine that ends, even by a stop, may lose a line before it logs
// it.
func (p *testEngine) checkComplete(c *testRun, id string) {
	p.t.Helper()
	log, err := p.engine.Logs(p.t.Context(), id, false, testTimeout)
	if err != nil {
		p.t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	came := [2]map[string]bool{{}, {}}
	for i := range came {
		for line := range strings.Lines(c.out[i].String()) {
			came[i][line] = true
		}
	}
	kept := 0
	for {
		stream, size, err := log.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		piece := make([]byte, size)
		if err == nil {
			_, err = io.ReadFull(log, piece)
		}
		if err != nil {
			p.t.Fatal(err)
		}
		_, line, err := docker.SplitTimestamp(piece)
		if err != nil {
			p.t.Fatal(err)
		}
		if kept++; !came[stream-docker.Stdout][string(line)] {
			p.t.Errorf("the engine logged %q, which was not received", line)
		}
	}
	if n := c.countLines(); kept < n {
		p.t.Errorf("the engine logged %d lines of both streams, %d of one were received", kept, n)
	}
}

// inOrder checks that no line is repeated or out of order.
func inOrder(t *testing.T, c *testRun) {
	t.Helper()
	for i, name := range []string{"line ", "err "} {
		last := 0
		for line := range strings.Lines(c.out[i].String()) {
			n, err := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(line, name)))
			if err != nil && (i != 0 || line != "end\n") || err == nil && n <= last {
				t.Errorf("%s%d is followed by %q", name, last, line)
			}
			last = max(last, n)
		}
	}
}

// engineDown reports whether the task waits for its engine.
func (c *testRun) engineDown() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := len(c.waiting)
	return n > 0 && c.waiting[n-1] == "waiting for the container engine"
}

// countLines returns the number of received lines.
func (c *testRun) countLines() int { return strings.Count(c.stdout(), "\n") }

func TestContainerSurvivesItsEngine(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"stopped", "killed"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			s := newOwnEngine(t, "--live-restore")
			c, ctr := s.count(7)
			for range 2 {
				if how == "stopped" {
					s.d.Stop()
				} else {
					s.d.Kill()
				}
				eventually(t, "the message about the outage", c.engineDown)
				s.d.Restart()
				n := c.countLines()
				eventually(t, "more lines", func() bool { return c.countLines() > n+20 })
			}
			s.finish()
			if x := c.wait(); x != (proctree.ExitStatus{Code: 7}) {
				t.Errorf("%+v", x)
			}
			s.checkComplete(c, ctr.ID)
			inOrder(t, c)
			if !strings.HasSuffix(c.stdout(), "\nend\n") {
				t.Errorf("the output ends with %.50q", c.stdout()[max(0, len(c.stdout())-50):])
			}
			if messages := c.messages(); !strings.Contains(messages, "is available again") || !strings.HasSuffix(messages, "|") {
				t.Errorf("messages: %s", messages)
			}
		})
	}
}

func TestExitDuringAnOutage(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		live bool
		kill bool
		code int
	}{
		{"kept and stopped", true, false, 3},
		{"kept and stopped, a success", true, false, 0},
		{"killed", false, true, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var flags []string
			if c.live {
				flags = append(flags, "--live-restore")
			}
			s := newOwnEngine(t, flags...)
			v, _ := s.count(c.code)
			if c.kill {
				s.d.Kill()
			} else {
				s.d.Stop()
			}
			eventually(t, "the message about the outage", v.engineDown)
			s.finish()
			waitProcess(t, v.Pid())
			s.d.Restart()
			if x := v.wait(); x != (proctree.ExitStatus{Code: c.code}) {
				t.Errorf("%+v, messages: %s", x, v.messages())
			}
			// Output that a container prints without its engine is lost if it ends before the engine returns.
			inOrder(t, v)
			if !strings.Contains(v.messages(), "may be missing") {
				t.Errorf("messages: %s", v.messages())
			}
		})
	}
}

// The exit code of a program that handles the engine's signal is not its own.
func TestEngineStopIsNotTheTasksExit(t *testing.T) {
	t.Parallel()
	s := newOwnEngine(t)
	heeds, _ := s.count(0)
	dies := runContainer(t, s.create(nil, "sleep", "1000"), testTimeouts) // has no handler: the engine kills it
	s.d.Stop()
	s.d.Restart()
	for name, c := range map[string]*testRun{"heeds": heeds, "dies": dies} {
		if x := c.wait(); x.Stopped == nil || x.Stopped.Outcome != muster.AttemptFailed || x.Stopped.Reason != muster.EngineFailed {
			t.Errorf("%s: %+v, messages: %s", name, x, c.messages())
		}
	}
}

func TestOutageTimeout(t *testing.T) {
	t.Parallel()
	s := newOwnEngine(t, "--live-restore")
	p := testTimeouts
	p.Outage = 300 * time.Millisecond
	c := runContainer(t, s.create(nil, "sleep", "1000"), p)
	s.d.Stop()
	if x := c.wait(); x.Stopped == nil || x.Stopped.Reason != muster.EngineFailed || !strings.Contains(x.Stopped.Message, "was unreachable for") {
		t.Errorf("%+v", x)
	}
	s.d.Restart() // for the removal of the container
}

func TestCommandsWaitForAnUnreachableEngine(t *testing.T) {
	t.Parallel()
	s := newOwnEngine(t, "--live-restore")
	c, _ := s.count(0)
	s.d.Stop()
	c.Signal("SIGTERM")
	s.d.Restart()
	if x := c.wait(); x != (proctree.ExitStatus{}) || !strings.HasSuffix(c.stdout(), "asked\n") {
		t.Errorf("%+v, %s", x, c.messages())
	}
}

func TestSlowEngineOnlyDelays(t *testing.T) {
	t.Parallel()
	s := newOwnEngine(t)
	p := testTimeouts
	p.Call = 200 * time.Millisecond
	ctr := s.create(func(p *docker.ContainerSpec) { p.Mounts = []docker.Mount{{Source: s.dir, Target: "/muster"}} }, "sh", "-c", counting+"0")
	c := runContainer(t, ctr, p)
	c.await("line 5\n")
	s.d.SetFrozen(true)
	if err := c.Freeze(true); err == nil {
		t.Error("a stopped engine froze it")
	}
	s.d.SetFrozen(false)
	n := c.countLines() // the late freeze is undone
	eventually(t, "further output", func() bool { return c.countLines() > n+5 })
	s.d.SetFrozen(true)
	c.Kill()
	s.d.SetFrozen(false)
	if x := c.wait(); !x.Killed || x.Stopped != nil {
		t.Errorf("%+v, messages: %s", x, c.messages())
	}
}

func TestHangingEngineTimeoutOfAKill(t *testing.T) {
	t.Parallel()
	s := newOwnEngine(t)
	p := testTimeouts
	p.Call, p.Outage = 100*time.Millisecond, 500*time.Millisecond
	c := runContainer(t, s.create(nil, "sleep", "1000"), p)
	s.d.SetFrozen(true)
	defer s.d.SetFrozen(false)
	c.Kill()
	if x := c.wait(); x.Stopped == nil || x.Stopped.Reason != muster.EngineFailed {
		t.Errorf("%+v", x)
	}
}
