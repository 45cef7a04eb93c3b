//go:build unix

package vessel

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
	"github.com/muster-dev/muster/internal/agent/shim/kin"
	"github.com/muster-dev/muster/internal/mustertest/engines"
)

// quick is the patience of tests, which wait for what must come.
var quick = Patience{Start: time.Minute, Call: 30 * time.Second, Away: 2 * time.Minute, Pause: 20 * time.Millisecond, Drain: time.Minute}

const patience = 2 * time.Minute

// port has containers on an engine.
type port struct {
	t      *testing.T
	host   string
	engine *docker.Engine
	image  string
}

var numbers atomic.Int64

func shared(t *testing.T) *port {
	t.Helper()
	return at(t, engines.Shared(t))
}

func at(t *testing.T, host string) *port {
	t.Helper()
	e, err := docker.Open(host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	return &port{t, host, e, engines.Busybox(t, host)}
}

// make makes a container that is removed after the test.
func (p *port) make(change func(*docker.Plan), command ...string) *run.Container {
	p.t.Helper()
	plan := &docker.Plan{
		Name: fmt.Sprintf("vessel-%d-%d", os.Getpid(), numbers.Add(1)), Image: p.image, Command: command,
		Entrypoint: []string{}, LogSize: "32m", LogFiles: 2, Network: "none", Keep: []string{"KILL"},
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

// crew hears of a vessel and reads what it prints.
type crew struct {
	*Vessel

	t     *testing.T
	out   [2]reader
	done  chan struct{}
	ended kin.Ended

	mu    sync.Mutex
	said  []string
	waits []string
}

// reader keeps what came out of a pipe.
type reader struct {
	mu   sync.Mutex
	b    bytes.Buffer
	wait chan struct{} // closed at the end
	gate chan struct{} // if it is not nil, reading begins when it is closed
}

func (r *reader) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.b.String()
}

func (r *reader) read(f *os.File) {
	defer close(r.wait)
	defer f.Close()
	if r.gate != nil {
		<-r.gate
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

func (c *crew) Say(line string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.said = append(c.said, line)
}

func (c *crew) Waits(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waits = append(c.waits, what)
}

func (*crew) Hurry() {}

// words are all that was said.
func (c *crew) words() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.Join(c.said, "\n") + "\n" + strings.Join(c.waits, "|")
}

// board starts a container, without standing by it yet.
func board(t *testing.T, c *run.Container, p Patience) (*crew, error) {
	t.Helper()
	w := &crew{t: t, done: make(chan struct{})}
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
	w.Vessel, err = Start(c, "MARK=1", ends[0], ends[1], p, w, slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err != nil {
		for i := range w.out {
			<-w.out[i].wait // Start closes what it was given
		}
	}
	return w, err
}

// sail starts a container and stands by it.
func sail(t *testing.T, c *run.Container, p Patience) *crew {
	t.Helper()
	w, err := board(t, c, p)
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

// wait returns how it ended.
func (c *crew) wait() kin.Ended {
	c.t.Helper()
	select {
	case <-c.done:
		return c.ended
	case <-time.After(patience):
		c.t.Fatalf("the container does not end; said: %s", c.words())
		return kin.Ended{}
	}
}

func (c *crew) stdout() string { return c.out[0].String() }

// await waits until it printed something.
func (c *crew) await(text string) {
	c.t.Helper()
	await(c.t, "it prints "+text, func() bool { return strings.Contains(c.stdout(), text) })
}

func await(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !cond(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

func TestHowAContainerEndsIsTold(t *testing.T) {
	p := shared(t)
	for text, want := range map[string]kin.Ended{
		"exit 0":                           {},
		"exit 75":                          {Code: 75},
		"sh -c 'kill -KILL $$'; exit $?":   {Code: 137, Signal: "SIGKILL", Killed: true},
		"sh -c 'kill -SEGV $$'; exit $?":   {Code: 139, Signal: "SIGSEGV"},
		"exec >&- 2>&-; sleep 0.2; exit 3": {Code: 3}, // its output ends long before it does
	} {
		c := sail(t, p.make(nil, "sh", "-c", text), quick)
		if got := c.wait(); got != want {
			t.Errorf("%s: %+v, want %+v", text, got, want)
		}
	}
}

func TestAContainerThatHasNoMoreMemorySaysSo(t *testing.T) {
	p := shared(t)
	c := sail(t, p.make(func(d *docker.Plan) { d.Memory = 16 << 20 }, "sh", "-c", "x=0123456789abcdef; while :; do x=$x$x; done"), quick)
	if x := c.wait(); !x.OOM || x.Code != 137 {
		t.Errorf("%+v; it said %s", x, c.out[1].String())
	}
}

func TestAllThatAContainerPrintsComesInOrder(t *testing.T) {
	p := shared(t)
	const lines = 200_000
	c := sail(t, p.make(nil, "sh", "-c", fmt.Sprintf(`awk 'BEGIN { for (i = 1; i <= %d; i++) printf "out %%06d of this very line, which is as long as lines are\n", i }' &
		awk 'BEGIN { for (i = 1; i <= %d; i++) printf "err %%06d\n", i }' >&2; wait; printf end`, lines, lines)), quick)
	if x := c.wait(); x != (kin.Ended{}) {
		t.Errorf("%+v", x)
	}
	var out, errs strings.Builder
	for i := 1; i <= lines; i++ {
		fmt.Fprintf(&out, "out %06d of this very line, which is as long as lines are\n", i)
		fmt.Fprintf(&errs, "err %06d\n", i)
	}
	out.WriteString("end")
	if c.stdout() != out.String() || c.out[1].String() != errs.String() {
		t.Errorf("%d and %d bytes came, want %d and %d", len(c.stdout()), len(c.out[1].String()), out.Len(), errs.Len())
	}
}

func TestWhatIsNotReadKeepsAContainerWaiting(t *testing.T) {
	p := shared(t)
	w := &crew{t: t, done: make(chan struct{})}
	var ends [2]*os.File
	open := make(chan struct{})
	for i := range ends {
		r, pw, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		ends[i] = pw
		w.out[i].wait, w.out[i].gate = make(chan struct{}), open
		go w.out[i].read(r)
	}
	box := p.make(nil, "sh", "-c", "head -c 20000000 /dev/zero | tr '\\0' x; echo; echo end")
	var err error
	if w.Vessel, err = Start(box, "MARK=1", ends[0], ends[1], quick, w, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(w.done)
		w.ended = w.Wait()
		<-w.out[0].wait
	}()
	// It prints twenty times what all between it and the reader can hold: it cannot end before somebody reads.
	s, err := p.engine.State(t.Context(), box.ID)
	if err != nil || !s.Running {
		t.Errorf("%+v, %v", s, err)
	}
	close(open)
	if x := w.wait(); x != (kin.Ended{}) || len(w.stdout()) != 20000000+len("\nend\n") {
		t.Errorf("%+v after %d bytes", x, len(w.stdout()))
	}
}

func TestWhatCannotBeStartedInAContainerSaysWhy(t *testing.T) {
	p := shared(t)
	plain := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(plain, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		change func(*docker.Plan)
		argv   []string
		reason muster.Reason
		says   string
	}{
		{"no program", nil, []string{"no-such"}, muster.StartFailed, "no-such: no such command in the image " + p.image},
		{"no file", nil, []string{"/no/such"}, muster.StartFailed, "/no/such: no such command in the image"},
		{"a shell text", nil, []string{"echo a"}, muster.StartFailed, "is a list, or a text that a shell runs"},
		{"no permission", func(d *docker.Plan) { d.Mounts = []docker.Mount{{Source: plain, Target: "/plain"}} }, []string{"/plain"}, muster.StartFailed, "/plain cannot be executed in the image"},
		{"a folder", nil, []string{"/etc"}, muster.StartFailed, "/etc cannot be executed in the image"},
		{"no user", func(d *docker.Plan) { d.User = "nobody-here" }, []string{"true"}, muster.StartFailed, "there is no user nobody-here in the image"},
	} {
		t.Run(c.name, func(t *testing.T) {
			box := p.make(c.change, c.argv...)
			_, err := board(t, box, quick)
			failed, ok := err.(*run.TaskError) //nolint:errorlint // the contract
			if !ok || failed.Reason != c.reason || !strings.Contains(failed.Message, c.says) {
				t.Errorf("%v", err)
			}
			if s, err := p.engine.State(t.Context(), box.ID); err != nil || s.Running {
				t.Errorf("it is %+v, %v", s, err)
			}
		})
	}
	t.Run("by an init", func(t *testing.T) {
		for program, says := range map[string]string{"no-such": "no-such: no such command in the image", "/etc": "/etc cannot be executed"} {
			c := sail(t, p.make(func(d *docker.Plan) { d.Init = true }, program), quick)
			if x := c.wait(); x.Stopped == nil || x.Stopped.Reason != muster.StartFailed || !strings.HasPrefix(x.Stopped.Message, says) {
				t.Errorf("%s: %+v, said %q", program, x, c.out[1].String())
			}
		}
		c := sail(t, p.make(func(d *docker.Plan) { d.Init = true }, "sh", "-c", "no-such"), quick)
		if x := c.wait(); x != (kin.Ended{Code: 127}) {
			t.Errorf("what a shell does not find is its own: %+v", x)
		}
	})
	t.Run("no container", func(t *testing.T) {
		_, err := board(t, &run.Container{Engine: p.host, ID: "0123456789ab"}, quick)
		if failed, ok := err.(*run.TaskError); !ok || failed.Reason != muster.EngineFailed { //nolint:errorlint // the contract
			t.Errorf("%v", err)
		}
	})
	t.Run("no engine", func(t *testing.T) {
		_, err := board(t, &run.Container{Engine: "unix://" + t.TempDir() + "/none", ID: "0123456789ab"}, quick)
		if failed, ok := err.(*run.TaskError); !ok || failed.Reason != muster.EngineFailed { //nolint:errorlint // the contract
			t.Errorf("%v", err)
		}
	})
}

func TestAContainersProcessIsNamed(t *testing.T) {
	if _, err := os.Stat("/proc/self/cgroup"); err != nil {
		t.Skip("processes are told apart on Linux only")
	}
	p := shared(t)
	c := sail(t, p.make(nil, "sleep", "1000"), quick)
	pid := c.Pid()
	path := "/proc/" + strconv.Itoa(pid.PID) + "/cmdline"
	if _, err := os.Stat(path); os.IsNotExist(err) {
		t.Skip("the engine is not on this machine")
	}
	if pid.StartTicks == 0 || pid.BootID == "" || pid.Mark != "MARK=1" {
		t.Errorf("it is %+v", pid)
	}
	await(t, "the process is that of the command", func() bool { // an engine's runtime executes it a moment after it has said that it runs
		line, err := os.ReadFile(path)
		return err == nil && string(line) == "sleep\x001000\x00"
	})
}

func TestAContainerIsSignalledKilledAndFrozen(t *testing.T) {
	p := shared(t)
	t.Run("signal", func(t *testing.T) {
		c := sail(t, p.make(nil, "sh", "-c", "trap 'echo usr1; exit 5' USR1; echo ready; while :; do sleep 0.02; done"), quick)
		c.await("ready")
		c.Signal("SIGUSR1")
		if x := c.wait(); x.Code != 5 || !strings.HasSuffix(c.stdout(), "usr1\n") {
			t.Errorf("%+v, %q", x, c.stdout())
		}
	})
	t.Run("kill", func(t *testing.T) {
		c := sail(t, p.make(nil, "sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.02; done"), quick)
		c.await("ready")
		c.Signal("SIGTERM")
		c.Kill()
		if x := c.wait(); x != (kin.Ended{Code: 137, Signal: "SIGKILL", Killed: true}) {
			t.Errorf("%+v", x)
		}
	})
	t.Run("freeze", func(t *testing.T) {
		box := p.make(nil, "sh", "-c", "trap 'echo saved; exit 0' TERM; echo ready; while :; do sleep 0.02; done")
		c := sail(t, box, quick)
		c.await("ready")
		for _, on := range []bool{true, true, false, false, true} {
			if err := c.Freeze(on); err != nil {
				t.Fatal(err)
			}
			await(t, fmt.Sprintf("the engine says of frozen: %t", on), func() bool { // it hears of what it did itself a little later, once more
				s, err := p.engine.State(t.Context(), box.ID)
				return err == nil && s.Paused == on
			})
		}
		c.Signal("SIGTERM") // thaws
		if x := c.wait(); x.Code != 0 || !strings.HasSuffix(c.stdout(), "saved\n") {
			t.Errorf("%+v, %q", x, c.stdout())
		}
	})
	t.Run("frozen and killed", func(t *testing.T) {
		c := sail(t, p.make(nil, "sleep", "1000"), quick)
		if err := c.Freeze(true); err != nil {
			t.Fatal(err)
		}
		c.Kill()
		if x := c.wait(); !x.Killed {
			t.Errorf("%+v", x)
		}
	})
}

func TestAContainerThatSomebodyRemovesIsLost(t *testing.T) {
	p := shared(t)
	box := p.make(nil, "sleep", "1000")
	c := sail(t, box, quick)
	if err := p.engine.Remove(t.Context(), box.ID); err != nil {
		t.Fatal(err)
	}
	if x := c.wait(); x.Stopped == nil || x.Stopped.Reason != muster.EngineFailed || !strings.Contains(x.Stopped.Message, "removed") {
		t.Errorf("%+v", x)
	}
}
