//go:build unix

package containerrun

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/docker"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/agent/shim/proctree"
	"github.com/muster-dev/muster/internal/mustertest/containertest"
)

// testTimeouts are the timeouts of tests.
var testTimeouts = Timeouts{Start: time.Minute, Call: 30 * time.Second, Outage: 2 * time.Minute, RetryDelay: 20 * time.Millisecond, Drain: time.Minute}

const testTimeout = 2 * time.Minute

// testEngine creates containers on an engine.
type testEngine struct {
	t      *testing.T
	host   string
	engine *docker.Engine
	image  string
}

var numbers atomic.Int64

func sharedEngine(t *testing.T) *testEngine {
	t.Helper()
	return engineAt(t, containertest.SharedEngine(t))
}

func engineAt(t *testing.T, host string) *testEngine {
	t.Helper()
	e, err := docker.Open(host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	return &testEngine{t, host, e, containertest.LoadBusybox(t, host)}
}

// create creates a container that is removed after the test.
func (p *testEngine) create(change func(*docker.ContainerSpec), command ...string) *run.Container {
	p.t.Helper()
	plan := &docker.ContainerSpec{
		Name: fmt.Sprintf("containerrun-%d-%d", os.Getpid(), numbers.Add(1)), Image: p.image, Command: command,
		Entrypoint: []string{}, LogSize: "32m", LogFiles: 2, Network: "none", CapAdd: []string{"KILL"},
	}
	if change != nil {
		change(plan)
	}
	id, err := p.engine.Create(p.t.Context(), plan)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() {
		if err := p.engine.Remove(context.WithoutCancel(p.t.Context()), id); err != nil {
			p.t.Error(err)
		}
	})
	return &run.Container{Engine: p.host, ID: id, Image: p.image}
}

// testRun handles the events of a container and reads its output.
type testRun struct {
	*Container

	t     *testing.T
	out   [2]reader
	done  chan struct{}
	ended proctree.ExitStatus

	mu      sync.Mutex
	lines   []string
	waiting []string
}

// reader collects the output of a pipe.
type reader struct {
	mu    sync.Mutex
	b     bytes.Buffer
	wait  chan struct{} // closed at the end
	start chan struct{} // reading begins when it is closed, or at once if it is nil
}

func (r *reader) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.b.String()
}

func (r *reader) read(f *os.File) {
	defer close(r.wait)
	defer f.Close()
	if r.start != nil {
		<-r.start
	}
	buf := make([]byte, 32<<10)
	for {
		n, err := f.Read(buf)
		r.mu.Lock()
		r.b.Write(buf[:n])
		r.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (c *testRun) LogLine(line string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lines = append(c.lines, line)
}

func (c *testRun) OnWaiting(reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting = append(c.waiting, reason)
}

func (*testRun) OnExit() {}

// messages returns all lines for the log.
func (c *testRun) messages() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.Join(c.lines, "\n") + "\n" + strings.Join(c.waiting, "|")
}

// startContainer starts a container without waiting for it.
func startContainer(t *testing.T, c *run.Container, p Timeouts) (*testRun, error) {
	t.Helper()
	w := &testRun{t: t, done: make(chan struct{})}
	var ends [2]*os.File
	for i := range ends {
		r, pw, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		ends[i], w.out[i].wait = pw, make(chan struct{})
		go w.out[i].read(r)
	}
	var err error
	w.Container, err = Start(c, "MARK=1", ends[0], ends[1], p, w, slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err != nil {
		for i := range w.out {
			<-w.out[i].wait // Start closes its pipes
		}
	}
	return w, err
}

// runContainer starts a container and waits for it in the background.
func runContainer(t *testing.T, c *run.Container, p Timeouts) *testRun {
	t.Helper()
	w, err := startContainer(t, c, p)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(w.done)
		w.ended = w.Wait()
		for i := range w.out {
			<-w.out[i].wait
		}
	}()
	t.Cleanup(func() {
		w.Kill()
		<-w.done
	})
	return w
}

// wait returns how the container ended.
func (c *testRun) wait() proctree.ExitStatus {
	c.t.Helper()
	select {
	case <-c.done:
		return c.ended
	case <-time.After(testTimeout):
		c.t.Fatalf("the container does not end; messages: %s", c.messages())
		return proctree.ExitStatus{}
	}
}

func (c *testRun) stdout() string { return c.out[0].String() }

// await waits for a text in the output.
func (c *testRun) await(text string) {
	c.t.Helper()
	eventually(c.t, "the output "+text, func() bool { return strings.Contains(c.stdout(), text) })
}

func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(testTimeout); !cond(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("timed out: %s", what)
		}
	}
}

func TestExitOfAContainer(t *testing.T) {
	p := sharedEngine(t)
	for text, want := range map[string]proctree.ExitStatus{
		"exit 0":                           {},
		"exit 75":                          {Code: 75},
		"sh -c 'kill -KILL $$'; exit $?":   {Code: 137, Signal: "SIGKILL", Killed: true},
		"sh -c 'kill -SEGV $$'; exit $?":   {Code: 139, Signal: "SIGSEGV"},
		"exec >&- 2>&-; sleep 0.2; exit 3": {Code: 3}, // its output ends long before the process
	} {
		c := runContainer(t, p.create(nil, "sh", "-c", text), testTimeouts)
		if got := c.wait(); got != want {
			t.Errorf("%s: %+v, want %+v", text, got, want)
		}
	}
}

func TestContainerOutOfMemory(t *testing.T) {
	p := sharedEngine(t)
	c := runContainer(t, p.create(func(d *docker.ContainerSpec) { d.Memory = 16 << 20 }, "sh", "-c", "x=0123456789abcdef; while :; do x=$x$x; done"), testTimeouts)
	if x := c.wait(); !x.OOM || x.Code != 137 {
		t.Errorf("%+v; stderr: %s", x, c.out[1].String())
	}
}

func TestOutputIsCompleteAndInOrder(t *testing.T) {
	p := sharedEngine(t)
	const lines = 200_000
	c := runContainer(t, p.create(nil, "sh", "-c", fmt.Sprintf(`awk 'BEGIN { for (i = 1; i <= %d; i++) printf "out %%06d of this very line, which is as long as lines are\n", i }' &
		awk 'BEGIN { for (i = 1; i <= %d; i++) printf "err %%06d\n", i }' >&2; wait; printf end`, lines, lines)), testTimeouts)
	if x := c.wait(); x != (proctree.ExitStatus{}) {
		t.Errorf("%+v", x)
	}
	var out, errs strings.Builder
	for i := 1; i <= lines; i++ {
		fmt.Fprintf(&out, "out %06d of this very line, which is as long as lines are\n", i)
		fmt.Fprintf(&errs, "err %06d\n", i)
	}
	out.WriteString("end")
	if c.stdout() != out.String() || c.out[1].String() != errs.String() {
		t.Errorf("received %d and %d bytes, want %d and %d", len(c.stdout()), len(c.out[1].String()), out.Len(), errs.Len())
	}
}

func TestUnreadOutputBlocksTheContainer(t *testing.T) {
	p := sharedEngine(t)
	w := &testRun{t: t, done: make(chan struct{})}
	var ends [2]*os.File
	open := make(chan struct{})
	for i := range ends {
		r, pw, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		ends[i] = pw
		w.out[i].wait, w.out[i].start = make(chan struct{}), open
		go w.out[i].read(r)
	}
	ctr := p.create(nil, "sh", "-c", "head -c 20000000 /dev/zero | tr '\\0' x; echo; echo end")
	var err error
	if w.Container, err = Start(ctr, "MARK=1", ends[0], ends[1], testTimeouts, w, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(w.done)
		w.ended = w.Wait()
		<-w.out[0].wait
	}()
	// It prints twenty times what all buffers between it and the reader hold: it cannot end before the output is read.
	s, err := p.engine.State(t.Context(), ctr.ID)
	if err != nil || !s.Running {
		t.Errorf("%+v, %v", s, err)
	}
	close(open)
	if x := w.wait(); x != (proctree.ExitStatus{}) || len(w.stdout()) != 20000000+len("\nend\n") {
		t.Errorf("%+v after %d bytes", x, len(w.stdout()))
	}
}

func TestFailedStartIsExplained(t *testing.T) {
	p := sharedEngine(t)
	plain := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(plain, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name    string
		change  func(*docker.ContainerSpec)
		argv    []string
		reason  muster.Reason
		message string
	}{
		{"no program", nil, []string{"no-such"}, muster.StartFailed, "no-such: no such command in the image " + p.image},
		{"no file", nil, []string{"/no/such"}, muster.StartFailed, "/no/such: no such command in the image"},
		{"a shell text", nil, []string{"echo a"}, muster.StartFailed, "as a list, or as a text for a shell"},
		{"no permission", func(d *docker.ContainerSpec) { d.Mounts = []docker.Mount{{Source: plain, Target: "/plain"}} }, []string{"/plain"}, muster.StartFailed, "/plain cannot be executed in the image"},
		{"a folder", nil, []string{"/etc"}, muster.StartFailed, "/etc cannot be executed in the image"},
		{"no user", func(d *docker.ContainerSpec) { d.User = "nobody-here" }, []string{"true"}, muster.StartFailed, "no user nobody-here in the image"},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctr := p.create(c.change, c.argv...)
			_, err := startContainer(t, ctr, testTimeouts)
			failed, ok := err.(*run.TaskError) //nolint:errorlint // the contract
			if !ok || failed.Reason != c.reason || !strings.Contains(failed.Message, c.message) {
				t.Errorf("%v", err)
			}
			if s, err := p.engine.State(t.Context(), ctr.ID); err != nil || s.Running {
				t.Errorf("state %+v, %v", s, err)
			}
		})
	}
	t.Run("by an init", func(t *testing.T) {
		for program, message := range map[string]string{"no-such": "no-such: no such command in the image", "/etc": "/etc cannot be executed"} {
			c := runContainer(t, p.create(func(d *docker.ContainerSpec) { d.Init = true }, program), testTimeouts)
			if x := c.wait(); x.Stopped == nil || x.Stopped.Reason != muster.StartFailed || !strings.HasPrefix(x.Stopped.Message, message) {
				t.Errorf("%s: %+v, stderr %q", program, x, c.out[1].String())
			}
		}
		c := runContainer(t, p.create(func(d *docker.ContainerSpec) { d.Init = true }, "sh", "-c", "no-such"), testTimeouts)
		if x := c.wait(); x != (proctree.ExitStatus{Code: 127}) {
			t.Errorf("a shell that does not find a command exits by itself: %+v", x)
		}
	})
	t.Run("no container", func(t *testing.T) {
		_, err := startContainer(t, &run.Container{Engine: p.host, ID: "0123456789ab"}, testTimeouts)
		if failed, ok := err.(*run.TaskError); !ok || failed.Reason != muster.EngineFailed { //nolint:errorlint // the contract
			t.Errorf("%v", err)
		}
	})
	t.Run("no engine", func(t *testing.T) {
		_, err := startContainer(t, &run.Container{Engine: "unix://" + t.TempDir() + "/none", ID: "0123456789ab"}, testTimeouts)
		if failed, ok := err.(*run.TaskError); !ok || failed.Reason != muster.EngineFailed { //nolint:errorlint // the contract
			t.Errorf("%v", err)
		}
	})
}

func TestPidOfAContainer(t *testing.T) {
	if _, err := os.Stat("/proc/self/cgroup"); err != nil {
		t.Skip("processes are only identified on Linux")
	}
	p := sharedEngine(t)
	c := runContainer(t, p.create(nil, "sleep", "1000"), testTimeouts)
	pid := c.Pid()
	path := "/proc/" + strconv.Itoa(pid.PID) + "/cmdline"
	if _, err := os.Stat(path); os.IsNotExist(err) {
		t.Skip("the engine is not on this machine")
	}
	if pid.StartTicks == 0 || pid.BootID == "" || pid.EnvTag != "MARK=1" {
		t.Errorf("pid %+v", pid)
	}
	eventually(t, "the process of the command", func() bool { // a runtime may execute it just after it reports the start
		line, err := os.ReadFile(path)
		return err == nil && string(line) == "sleep\x001000\x00"
	})
}

func TestContainerSignalKillFreeze(t *testing.T) {
	p := sharedEngine(t)
	t.Run("signal", func(t *testing.T) {
		c := runContainer(t, p.create(nil, "sh", "-c", "trap 'echo usr1; exit 5' USR1; echo ready; while :; do sleep 0.02; done"), testTimeouts)
		c.await("ready")
		c.Signal("SIGUSR1")
		if x := c.wait(); x.Code != 5 || !strings.HasSuffix(c.stdout(), "usr1\n") {
			t.Errorf("%+v, %q", x, c.stdout())
		}
	})
	t.Run("kill", func(t *testing.T) {
		c := runContainer(t, p.create(nil, "sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.02; done"), testTimeouts)
		c.await("ready")
		c.Signal("SIGTERM")
		c.Kill()
		if x := c.wait(); x != (proctree.ExitStatus{Code: 137, Signal: "SIGKILL", Killed: true}) {
			t.Errorf("%+v", x)
		}
	})
	t.Run("freeze", func(t *testing.T) {
		ctr := p.create(nil, "sh", "-c", "trap 'echo saved; exit 0' TERM; echo ready; while :; do sleep 0.02; done")
		c := runContainer(t, ctr, testTimeouts)
		c.await("ready")
		for _, on := range []bool{true, true, false, false, true} {
			if err := c.Freeze(on); err != nil {
				t.Fatal(err)
			}
			eventually(t, fmt.Sprintf("frozen: %t", on), func() bool { // the engine updates the state a little later
				s, err := p.engine.State(t.Context(), ctr.ID)
				return err == nil && s.Paused == on
			})
		}
		c.Signal("SIGTERM") // thaws
		if x := c.wait(); x.Code != 0 || !strings.HasSuffix(c.stdout(), "saved\n") {
			t.Errorf("%+v, %q", x, c.stdout())
		}
	})
	t.Run("frozen and killed", func(t *testing.T) {
		c := runContainer(t, p.create(nil, "sleep", "1000"), testTimeouts)
		if err := c.Freeze(true); err != nil {
			t.Fatal(err)
		}
		c.Kill()
		if x := c.wait(); !x.Killed {
			t.Errorf("%+v", x)
		}
	})
}

func TestRemovedContainerIsAnEngineFailure(t *testing.T) {
	p := sharedEngine(t)
	ctr := p.create(nil, "sleep", "1000")
	c := runContainer(t, ctr, testTimeouts)
	if err := p.engine.Remove(t.Context(), ctr.ID); err != nil {
		t.Fatal(err)
	}
	if x := c.wait(); x.Stopped == nil || x.Stopped.Reason != muster.EngineFailed || !strings.Contains(x.Stopped.Message, "removed") {
		t.Errorf("%+v", x)
	}
}
