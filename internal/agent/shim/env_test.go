//go:build unix

package shim

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/isolation/netns"
	"github.com/muster-dev/muster/internal/agent/progress"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/tasklog"
	"github.com/muster-dev/muster/internal/testkit"
)

// The first arguments with which this program is not its tests.
const (
	argShim = "be-the-shim"
	// argFaultyShim panics in the logs of some attempts: see faulty.
	argFaultyShim = "be-a-faulty-shim"
	argWorker     = "be-the-worker"
	argDial       = "be-a-caller"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 2 {
		switch os.Args[1] {
		case argShim:
			if err := Main(os.Args[2:]); err != nil {
				os.Exit(1)
			}
			os.Exit(0)
		case argFaultyShim:
			if err := faultyShim(os.Args[2:]); err != nil {
				os.Exit(1)
			}
			os.Exit(0)
		case argWorker:
			if err := runWorker(os.Args[2]); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			os.Exit(0)
		case NSInitCommand:
			fmt.Fprintln(os.Stderr, netns.Init(os.Args[2:]))
			os.Exit(126)
		case argDial:
			fmt.Println(dialShim(os.Args[2]))
			os.Exit(0)
		}
	}
	os.Exit(m.Run())
}

func shimCommand() []string { return []string{os.Args[0], argShim} }

// runWorker starts the attempts in its input, confirms each, saves the reports in its input, and waits to be killed.
func runWorker(dir string) error {
	c, err := Open(context.Background(), Config{Dir: dir, Command: shimCommand(), Build: "test", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	procs := map[muster.AttemptID]run.Proc{}
	for in := json.NewDecoder(os.Stdin); ; {
		var o workerCommand
		if err := in.Decode(&o); err != nil {
			return err
		}
		switch {
		case o.Start != nil:
			p, err := c.Start(context.Background(), o.Start, newFakeReporter())
			if err != nil {
				return err
			}
			procs[o.Start.Attempt] = p
		case o.Settle != nil:
			p := procs[o.Settle.Attempt]
			<-p.Done()
			p.SaveReport(o.Settle)
		case o.Contact != 0:
			c.SetLastContact(o.Contact)
		}
		fmt.Println("done")
	}
}

// dialShim connects to a shim with its key, and returns the reply as text.
func dialShim(dir string) string {
	key, err := os.ReadFile(filepath.Join(dir, keyFile))
	if err != nil {
		return err.Error()
	}
	d := &stateDir{path: dir, key: string(key)}
	conn, err := d.dial()
	if err != nil {
		return err.Error()
	}
	defer conn.Close()
	if _, _, err := handshake(conn, d, 0, slog.New(slog.DiscardHandler)); err != nil {
		return "refused"
	}
	return "served"
}

// workerCommand is a line of runWorker's input.
type workerCommand struct {
	Start   *run.StartSpec `json:"start"`
	Settle  *muster.Report `json:"settle"`
	Contact time.Duration  `json:"contact"`
}

// workerProcess is a worker in its own process.
type workerProcess struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.WriteCloser
	out io.Reader
}

func startWorker(t *testing.T, dir string) *workerProcess {
	t.Helper()
	cmd := exec.Command(os.Args[0], argWorker, dir)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w := &workerProcess{t, cmd, in, out}
	t.Cleanup(w.kill)
	return w
}

// do sends a command and waits for the confirmation.
func (w *workerProcess) do(o workerCommand) {
	w.t.Helper()
	if err := json.NewEncoder(w.in).Encode(o); err != nil {
		w.t.Fatal(err)
	}
	buf := make([]byte, len("done\n"))
	if _, err := io.ReadFull(w.out, buf); err != nil {
		w.t.Fatalf("the other worker exited: %v", err)
	}
}

// kill is kill -9.
func (w *workerProcess) kill() {
	_ = w.cmd.Process.Kill()
	_ = w.cmd.Wait()
}

// mode is the process in which a shim runs.
type mode struct {
	name    string
	command []string
}

// forEachMode calls f for each mode that this system supports.
func forEachMode(t *testing.T, f func(t *testing.T, m mode)) {
	t.Helper()
	all := []mode{{name: "in this process"}}
	if outlives && !testing.Short() {
		all = append(all, mode{"in a process of its own", shimCommand()})
	}
	for _, m := range all {
		t.Run(m.name, func(t *testing.T) { f(t, m) })
	}
}

func needShims(t *testing.T) {
	t.Helper()
	if !outlives {
		t.Skipf("no shim outlives its worker on %s", runtime.GOOS)
	}
	if testing.Short() {
		t.Skip("shims in processes of their own are not for -short")
	}
}

// openClient opens a client that is closed at the end, and its shims ended.
func openClient(t *testing.T, dir string, m mode, tune ...func(*Config)) *Client {
	t.Helper()
	cfg := Config{Dir: dir, Command: m.command, Helper: []string{os.Args[0], NSInitCommand}, Build: "test", Log: testkit.Logger(t)}
	for _, f := range tune {
		f(&cfg)
	}
	c, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		signalled := endShims(dir)
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		for _, p := range signalled { // until then they write to the test's directories
			err := testkit.Poll(context.WithoutCancel(t.Context()), testTimeout, func() error {
				if isRunning(p) {
					return fmt.Errorf("shim %d still runs", p.PID)
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		}
	})
	return c
}

// openDetached is openClient with shims in their own processes.
func openDetached(t *testing.T, dir string) *Client {
	t.Helper()
	needShims(t)
	return openClient(t, dir, mode{command: shimCommand()})
}

// endShims ends all shims of a data dir, with their tasks.
func endShims(dir string) (signalled []run.Pid) {
	dirs, _ := listStateDirs(dir)
	for _, h := range dirs {
		if p := h.pid(); p.PID > 0 && p.PID != os.Getpid() {
			_ = syscall.Kill(p.PID, syscall.SIGTERM)
			signalled = append(signalled, p)
		}
	}
	return signalled
}

var numbers struct {
	sync.Mutex
	last int
}

// shellTask is an attempt that runs a shell text in its own folder.
func shellTask(t *testing.T, text string) *run.StartSpec {
	t.Helper()
	numbers.Lock()
	numbers.last++
	n := numbers.last
	numbers.Unlock()
	base := t.TempDir()
	mark := "MUSTER_OUT=" + filepath.Join(base, "out")
	return &run.StartSpec{
		Attempt: muster.AttemptID{Task: muster.TaskID{Job: 1, Num: n}, N: 1}, State: json.RawMessage(`{"a":1}`),
		Path: "/bin/sh", Argv: []string{"sh", "-c", text}, Env: []string{mark, "PATH=/usr/bin:/bin", "BASE=" + base}, Dir: base,
		EnvTag: mark, Events: filepath.Join(base, "events"),
		Lease: time.Hour, Kill: muster.Kill{Signal: "SIGTERM", Grace: muster.Duration(testTimeout / 2)},
	}
}

// startTask starts an attempt.
func startTask(t *testing.T, c *Client, s *run.StartSpec) (run.Proc, *fakeReporter) {
	t.Helper()
	k := newFakeReporter()
	p, err := c.Start(t.Context(), s, k)
	if err != nil {
		t.Fatal(err)
	}
	return p, k
}

// testTimeout is how long a test waits for something that must happen.
const testTimeout = 60 * time.Second

func waitTask(t *testing.T, p run.Proc) *run.Exit {
	t.Helper()
	select {
	case <-p.Done():
		return p.Exit()
	case <-time.After(testTimeout):
		t.Fatal("the task does not end")
		return nil
	}
}

// recoveredAttempt returns the only attempt of the previous worker.
func recoveredAttempt(t *testing.T, c *Client) *run.Recovered {
	t.Helper()
	all := c.Recovered()
	if len(all) != 1 {
		t.Fatalf("%d attempts, want others", len(all))
	}
	return &all[0]
}

func adopt(t *testing.T, c *Client, h *run.Recovered) (run.Proc, *fakeReporter) {
	t.Helper()
	k := newFakeReporter()
	p, err := c.Adopt(h, k)
	if err != nil {
		t.Fatal(err)
	}
	return p, k
}

// records reads an attempt's log.
func records(t *testing.T, dir string, id muster.AttemptID) []tasklog.Record {
	t.Helper()
	logs, err := tasklog.OpenDir(filepath.Join(dir, "logs"))
	if err != nil {
		t.Fatal(err)
	}
	defer logs.Close()
	r, err := logs.Open(t.Context(), id, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var out []tasklog.Record
	for d := tasklog.NewDecoder(r); ; {
		rec, err := d.Next()
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) { // a record that is being written
			return out
		}
		if err != nil {
			t.Fatalf("the log of %s cannot be read at %d: %v", id, d.Offset(), err)
		}
		rec.Data = append([]byte(nil), rec.Data...)
		out = append(out, rec)
	}
}

// printed returns what an attempt printed to one stream.
func printed(t *testing.T, dir string, id muster.AttemptID, stream tasklog.Stream) string {
	t.Helper()
	var b strings.Builder
	for _, r := range records(t, dir, id) {
		if r.Stream == stream {
			b.Write(r.Data)
		}
	}
	return b.String()
}

// fakeReporter records the reported values.
type fakeReporter struct {
	mu       sync.Mutex
	progress *muster.Progress // merged
	size     int64
}

func newFakeReporter() *fakeReporter { return &fakeReporter{} }

func (*fakeReporter) Started(muster.Time) {}
func (*fakeReporter) Process(run.Pid)     {}

func (s *fakeReporter) Progress(p muster.Progress) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.progress = progress.Merge(s.progress, &p, progress.MaxMetrics)
}

func (s *fakeReporter) LogGrew(size int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.size = max(s.size, size)
}

func (s *fakeReporter) last() (muster.Progress, int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.progress == nil {
		return muster.Progress{}, s.size
	}
	return *s.progress, s.size
}

// procState returns the state of a process in /proc, 0 if it does not exist.
func procState(pid int) byte {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if i := bytes.LastIndexByte(b, ')'); err == nil && i > 0 && i+2 < len(b) {
		return b[i+2]
	}
	return 0
}

// taggedPIDs lists the processes with a tag.
func taggedPIDs(tag string) (pids []string) {
	files, _ := filepath.Glob("/proc/[0-9]*/environ") // the pattern is right
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err == nil && bytes.Contains(append([]byte{0}, b...), []byte("\x00"+tag+"\x00")) {
			pids = append(pids, filepath.Base(filepath.Dir(f)))
		}
	}
	return pids
}
