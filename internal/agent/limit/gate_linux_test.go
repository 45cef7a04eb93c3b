package limit

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/limit/netns"
	"github.com/muster-dev/muster/internal/agent/run"
)

// beHelped is the first argument by which this program is netns.Helped.
const beHelped = "be-helped"

func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == beHelped {
		fmt.Fprintln(os.Stderr, netns.Helped(os.Args[2:]))
		os.Exit(126)
	}
	os.Exit(m.Run())
}

// listening starts a program and returns what listens in its network.
func (t *task) listening(path string, argv ...string) (*started, net.Listener, error) {
	t.w.Helper()
	var gate net.Listener
	p, err := spawnWith(t.w.T, t.confine, Program{
		Path: path, Argv: argv, Dir: t.folders.Work, Helper: []string{"/proc/self/exe", beHelped},
		Gate: func(l net.Listener) { gate = l },
	})
	if gate != nil {
		t.w.Cleanup(func() { _ = gate.Close() })
	}
	return p, gate, err
}

// TestAllowlistListens holds that what listens in the network of a task with an allowlist is
// there from its first instruction, and served here; that it has no other way out, and
// that one which cannot be started is told from others.
func TestAllowlistListens(t *testing.T) {
	if err := tryNetwork(); err != nil {
		t.Skipf("there is no network to be had: %v", err)
	}
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("there is no bash to connect with")
	}
	w := newWorld(t, nil)
	listed := func(r *run.Task) { r.Spec.Network, r.Spec.AllowHosts = muster.NetworkAllowlist, []string{"pypi.org"} }
	p, gate, err := w.task(listed).listening(bash, "my-name", "-c",
		fmt.Sprintf(`exec 3<>/dev/tcp/127.0.0.1/%d; read -u3 x; echo $0 $x; tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '
			grep CapAmb /proc/self/status; (exec 4<>/dev/tcp/192.0.2.1/80) 2>&1 | grep -om1 'Network is unreachable'`, run.ProxyPort))
	if err != nil {
		t.Fatal(err)
	}
	if gate == nil {
		t.Fatal("nothing listens")
	}
	c, err := gate.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write([]byte("hello\n")); err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
	want := "my-name hello\nlo\nCapAmb:\t0000000000000000\nNetwork is unreachable"
	if out, code := p.wait(); out != want || code != 0 {
		t.Errorf("the task prints %q and exits with %d, want %q and 0", out, code, want)
	}
	if _, gate, err := w.task(listed).listening("/no/such/program", "x"); !errors.Is(err, fs.ErrNotExist) || gate != nil {
		t.Errorf("a program that is not there: %v, and %v listens", err, gate)
	}
}

// TestListenElsewhere holds that the network of a process is entered for that socket only, and
// that of a wrong process not at all.
func TestListenElsewhere(t *testing.T) {
	needsRoot(t)
	if err := tryNetwork(); err != nil {
		t.Skipf("there is no network to be had: %v", err)
	}
	w := newWorld(t, nil)
	w.needs("pids") // so that its group has a name of its own
	task := w.task(func(r *run.Task) { r.Spec.Network = muster.NetworkNone })
	p := task.start("/bin/sleep", "sleep", "1000")
	l, err := netns.Listen(p.pid, "17.1-1")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if here, err := net.Listen("tcp", l.Addr().String()); err != nil {
		t.Errorf("the port of this network is taken: %v", err)
	} else {
		_ = here.Close()
	}
	if _, err := netns.Listen(p.pid, "17.2-1"); err == nil {
		t.Error("the network of another process is entered")
	}
	if _, err := netns.Listen(os.Getpid(), ""); err == nil {
		t.Error("the worker's own network is entered")
	}
	if _, err := netns.Listen(1<<30, ""); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the network of no process: %v", err)
	}
}
