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
	"github.com/muster-dev/muster/internal/agent/limit/netns"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/tasklog"
)

// The first arguments by which this program is something else than its tests.
const (
	beShim = "be-the-shim"
	// beFaultyShim panics in the logs of some attempts: see faulty.
	beFaultyShim = "be-a-faulty-shim"
	beWorker     = "be-the-worker"
	beCaller     = "be-a-caller"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 2 {
		switch os.Args[1] {
		case beShim:
			if err := Main(os.Args[2:]); err != nil {
				os.Exit(1)
			}
			os.Exit(0)
		case beFaultyShim:
			if err := faultyShim(os.Args[2:]); err != nil {
				os.Exit(1)
			}
			os.Exit(0)
		case beWorker:
			if err := worker(os.Args[2]); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			os.Exit(0)
		case HelpedCommand:
			fmt.Fprintln(os.Stderr, netns.Helped(os.Args[2:]))
			os.Exit(126)
		case beCaller:
			fmt.Println(caller(os.Args[2]))
			os.Exit(0)
		}
	}
	os.Exit(m.Run())
}

func command() []string { return []string{os.Args[0], beShim} }

// worker starts what it reads from its input, says so, settles what it is told to, and
// waits to be killed.
func worker(dir string) error {
	c, err := Open(context.Background(), Config{Dir: dir, Command: command(), Build: "test", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	procs := map[muster.AttemptID]run.Proc{}
	for in := json.NewDecoder(os.Stdin); ; {
		var o order
		if err := in.Decode(&o); err != nil {
			return err
		}
		switch {
		case o.Start != nil:
			p, err := c.Start(context.Background(), o.Start, newSink())
			if err != nil {
				return err
			}
			procs[o.Start.Attempt] = p
		case o.Settle != nil:
			p := procs[o.Settle.Attempt]
			<-p.Done()
			p.Settle(o.Settle)
		case o.Contact != 0:
			c.Contact(o.Contact)
		}
		fmt.Println("done")
	}
}

// caller talks to the shim in a home, whose key it knows, and says what it heard.
func caller(dir string) string {
	key, err := os.ReadFile(filepath.Join(dir, keyFile))
	if err != nil {
		return err.Error()
	}
	h := &home{dir: dir, key: string(key)}
	conn, err := h.dial()
	if err != nil {
		return err.Error()
	}
	defer conn.Close()
	if _, _, err := call(conn, h, 0, slog.New(slog.DiscardHandler)); err != nil {
		return "refused"
	}
	return "served"
}

// order is a line of worker's input.
type order struct {
	Start   *run.Start     `json:"start"`
	Settle  *muster.Report `json:"settle"`
	Contact time.Duration  `json:"contact"`
}

// other is a worker in a process of its own.
type other struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.WriteCloser
	out io.Reader
}

func startWorker(t *testing.T, dir string) *other {
	t.Helper()
	cmd := exec.Command(os.Args[0], beWorker, dir)
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
	w := &other{t, cmd, in, out}
	t.Cleanup(w.kill)
	return w
}

// do has it carry out an order.
func (w *other) do(o order) {
	w.t.Helper()
	if err := json.NewEncoder(w.in).Encode(o); err != nil {
		w.t.Fatal(err)
	}
	buf := make([]byte, len("done\n"))
	if _, err := io.ReadFull(w.out, buf); err != nil {
		w.t.Fatalf("the other worker is gone: %v", err)
	}
}

// kill is kill -9.
func (w *other) kill() {
	_ = w.cmd.Process.Kill()
	_ = w.cmd.Wait()
}

// mode is how a shim lives.
type mode struct {
	name    string
	command []string
}

// modes calls f for each way in which a shim can live here.
func modes(t *testing.T, f func(t *testing.T, m mode)) {
	t.Helper()
	all := []mode{{name: "in this process"}}
	if outlives && !testing.Short() {
		all = append(all, mode{"in a process of its own", command()})
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

// openClient opens a client that is closed at the end, with the shims that it has.
func openClient(t *testing.T, dir string, m mode, tune ...func(*Config)) *Client {
	t.Helper()
	cfg := Config{Dir: dir, Command: m.command, Helper: []string{os.Args[0], HelpedCommand}, Build: "test", Log: slog.New(slog.NewTextHandler(t.Output(), nil))}
	for _, f := range tune {
		f(&cfg)
	}
	c, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		told := endShims(dir)
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		for _, p := range told { // until then they write into the folders of the test
			await(t, "a shim that is told to end ends", func() bool { return !runs(p) })
		}
	})
	return c
}

// detached opens one whose shims are processes of their own.
func detached(t *testing.T, dir string) *Client {
	t.Helper()
	needShims(t)
	return openClient(t, dir, mode{command: command()})
}

// endShims has all shims of a data dir end, and what they hold.
func endShims(dir string) (told []run.Pid) {
	homes, _ := homesIn(dir)
	for _, h := range homes {
		if p := h.owner(); p.PID > 0 && p.PID != os.Getpid() {
			_ = syscall.Kill(p.PID, syscall.SIGTERM)
			told = append(told, p)
		}
	}
	return told
}

var numbers struct {
	sync.Mutex
	last int
}

// shell is an attempt that runs a shell text in a folder of its own.
func shell(t *testing.T, text string) *run.Start {
	t.Helper()
	numbers.Lock()
	numbers.last++
	n := numbers.last
	numbers.Unlock()
	base := t.TempDir()
	mark := "MUSTER_OUT=" + filepath.Join(base, "out")
	return &run.Start{
		Attempt: muster.AttemptID{Task: muster.TaskID{Job: 1, Num: n}, N: 1}, State: json.RawMessage(`{"a":1}`),
		Path: "/bin/sh", Argv: []string{"sh", "-c", text}, Env: []string{mark, "PATH=/usr/bin:/bin", "BASE=" + base}, Dir: base,
		Mark: mark, Events: filepath.Join(base, "events"),
		Lease: time.Hour, Kill: muster.Kill{Signal: "SIGTERM", Grace: muster.Duration(patience / 2)},
	}
}

// begin starts an attempt.
func begin(t *testing.T, c *Client, s *run.Start) (run.Proc, *sink) {
	t.Helper()
	k := newSink()
	p, err := c.Start(t.Context(), s, k)
	if err != nil {
		t.Fatal(err)
	}
	return p, k
}

// patience is how long a test waits for something that must happen.
const patience = 60 * time.Second

func wait(t *testing.T, p run.Proc) *run.Exit {
	t.Helper()
	select {
	case <-p.Done():
		return p.Exit()
	case <-time.After(patience):
		t.Fatal("the task does not end")
		return nil
	}
}

func await(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !cond(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

// held returns the only attempt that an earlier life left.
func held(t *testing.T, c *Client) *run.Held {
	t.Helper()
	all := c.Held()
	if len(all) != 1 {
		t.Fatalf("%d attempts are held", len(all))
	}
	return &all[0]
}

func adopt(t *testing.T, c *Client, h *run.Held) (run.Proc, *sink) {
	t.Helper()
	k := newSink()
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
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) { // of what is being written
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

// sink remembers what it is told.
type sink struct {
	mu       sync.Mutex
	progress *muster.Progress // merged
	size     int64
}

func newSink() *sink { return &sink{} }

func (*sink) Started(muster.Time) {}
func (*sink) Process(run.Pid)     {}

func (s *sink) Progress(p muster.Progress) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.progress = merge(s.progress, &p)
}

func (s *sink) LogGrew(size int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.size = max(s.size, size)
}

func (s *sink) seen() (muster.Progress, int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.progress == nil {
		return muster.Progress{}, s.size
	}
	return *s.progress, s.size
}

// state is that of a process as Linux shows it, 0 if it is not there.
func state(pid int) byte {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if i := bytes.LastIndexByte(b, ')'); err == nil && i > 0 && i+2 < len(b) {
		return b[i+2]
	}
	return 0
}

// marks lists the processes that have a mark.
func marks(mark string) (pids []string) {
	files, _ := filepath.Glob("/proc/[0-9]*/environ") // the pattern is right
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err == nil && bytes.Contains(append([]byte{0}, b...), []byte("\x00"+mark+"\x00")) {
			pids = append(pids, filepath.Base(filepath.Dir(f)))
		}
	}
	return pids
}
