package isolation

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/isolation/netns"
	"github.com/muster-dev/muster/internal/agent/run"
)

// nsinitArg is the first argument by which this program is netns.Helped.
const nsinitArg = "be-helped"

func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == nsinitArg {
		fmt.Fprintln(os.Stderr, netns.Init(os.Args[2:]))
		os.Exit(126)
	}
	if len(os.Args) > 1 && os.Args[1] == callsArg {
		makeCalls()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// startListening starts a program and returns what listens in its network.
func (t *task) startListening(path string, argv ...string) (*proc, net.Listener, error) {
	t.env.Helper()
	var listener net.Listener
	p, err := spawnWith(t.env.T, t.spec, Program{
		Path: path, Argv: argv, Dir: t.folders.Work,
		OnListener: func(l net.Listener) { listener = l },
	})
	if listener != nil {
		t.env.Cleanup(func() { _ = listener.Close() })
	}
	return p, listener, err
}

// TestAllowlistListens checks that the listener in the network of a task with an allowlist exists from the task's first instruction, and is
// served from outside; that the task has no other network, and that a program that cannot be started is reported as such.
func TestAllowlistListens(t *testing.T) {
	if err := tryNetwork(); err != nil {
		t.Skipf("network namespaces are not available: %v", err)
	}
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("bash is not installed")
	}
	w := newEnv(t, nil)
	listed := func(r *run.Task) { r.Spec.Network, r.Spec.AllowHosts = muster.NetworkAllowlist, []string{"pypi.org"} }
	p, listener, err := w.task(listed).startListening(bash, "my-name", "-c",
		fmt.Sprintf(`exec 3<>/dev/tcp/127.0.0.1/%d; read -u3 x; echo $0 $x; tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '
			grep CapAmb /proc/self/status; (exec 4<>/dev/tcp/192.0.2.1/80) 2>&1 | grep -om1 'Network is unreachable'`, run.ProxyPort))
	if err != nil {
		t.Fatal(err)
	}
	if listener == nil {
		t.Fatal("nothing listens")
	}
	c, err := listener.Accept()
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
	if _, listener, err := w.task(listed).startListening("/no/such/program", "x"); !errors.Is(err, fs.ErrNotExist) || listener != nil {
		t.Errorf("a missing program: %v, and %v listens", err, listener)
	}
}

// TestListenInAnotherNamespace checks that the network of a process is entered for that socket only, and
// that of a wrong process not at all.
func TestListenInAnotherNamespace(t *testing.T) {
	requireRoot(t)
	if err := tryNetwork(); err != nil {
		t.Skipf("network namespaces are not available: %v", err)
	}
	w := newEnv(t, nil)
	w.needControllers("pids") // so that its group has a name of its own
	task := w.task(func(r *run.Task) { r.Spec.Network = muster.NetworkNone })
	p := task.start("/bin/sleep", "sleep", "1000")
	l, err := netns.ListenIn(p.pid, "17.1-1")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if here, err := net.Listen("tcp", l.Addr().String()); err != nil {
		t.Errorf("the port of this network is taken: %v", err)
	} else {
		_ = here.Close()
	}
	if _, err := netns.ListenIn(p.pid, "17.2-1"); err == nil {
		t.Error("entered the network of another process")
	}
	if _, err := netns.ListenIn(os.Getpid(), ""); err == nil {
		t.Error("entered the worker's own network")
	}
	if _, err := netns.ListenIn(1<<30, ""); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the network of a missing process: %v", err)
	}
}
