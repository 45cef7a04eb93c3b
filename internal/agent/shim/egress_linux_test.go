package shim

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/tasklog"
	"github.com/muster-dev/muster/internal/testkit"
)

// allowlistTask is an attempt that runs a shell text in its own network, which can reach only hosts.
func allowlistTask(t *testing.T, text string, hosts ...string) *run.StartSpec {
	t.Helper()
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("curl is not installed")
	}
	s := shellTask(t, text)
	s.Isolation = &run.IsolationSpec{NoNet: true, NoNewPrivileges: true, AllowHosts: hosts}
	s.Env = append(s.Env, run.ProxyEnv(hosts)...)
	return s
}

// httpServer is a server of this machine.
func httpServer(t *testing.T) (address string) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "reached "+r.Host+"\n")
	}))
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

// TestAllowlist checks that a task reaches the listed hosts from its first instruction, and no others, and that its log has the denials.
func TestAllowlist(t *testing.T) {
	forEachMode(t, func(t *testing.T, m mode) {
		t.Helper()
		for flag, answers := range map[string]bool{"-sS": true, "-sSp": false} { // forwarded, and through a tunnel
			good, bad := httpServer(t), httpServer(t)
			dir := t.TempDir()
			s := allowlistTask(t, fmt.Sprintf(`curl %[1]s http://%[2]s/; curl %[1]s http://%[3]s/; curl %[1]s http://%[3]s/again
				curl -sS --noproxy '*' http://%[2]s/ || echo directly $?; getent hosts localhost.example || echo no names`, flag, good, bad), good)
			p, _ := startTask(t, openClient(t, dir, m), s)
			if x := waitTask(t, p); x.Code != 0 {
				t.Errorf("exit %+v", x)
			}
			out, refused := printed(t, dir, s.Attempt, tasklog.Stdout), "the network allowlist refused "+bad+": add it to allow_hosts\n"
			want := "reached " + good + "\n"
			if answers {
				want += refused + refused
			}
			if want += "directly 7\nno names\n"; out != want {
				t.Errorf("curl %s: it prints\n%s and\n%s, want\n%s", flag, out, printed(t, dir, s.Attempt, tasklog.Stderr), want)
			}
			if got := printed(t, dir, s.Attempt, tasklog.System); got != refused {
				t.Errorf("curl %s: the log has %q, want %q", flag, got, refused)
			}
		}
	})
}

// TestAllowlistSurvivesTheWorker checks that a task still reaches its hosts after its worker was killed, and that its connections end with it.
func TestAllowlistSurvivesTheWorker(t *testing.T) {
	needShims(t)
	far, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	dir, good := t.TempDir(), httpServer(t)
	fifo := filepath.Join(t.TempDir(), "go")
	s := allowlistTask(t, fmt.Sprintf("mkfifo %[1]s; curl -sS http://%[2]s/; read x <%[1]s; curl -sS http://%[2]s/; curl -sSp http://%[3]s/", fifo, good, far.Addr()), good, far.Addr().String())
	w := startWorker(t, dir)
	w.do(workerCommand{Start: s})
	w.kill()
	c := openDetached(t, dir)
	p, _ := adopt(t, c, recoveredAttempt(t, c))
	testkit.Await(t, "the first answer", func() bool { return printed(t, dir, s.Attempt, tasklog.Stdout) == "reached "+good+"\n" })
	if out, err := exec.CommandContext(t.Context(), "/bin/sh", "-c", "echo >"+fifo).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	tunnel, err := far.Accept() // which the task keeps open until it is stopped
	if err != nil {
		t.Fatal(err)
	}
	defer tunnel.Close()
	p.Stop(&run.Stopped{Outcome: muster.AttemptCancelled, Reason: muster.CancelledByUser}, muster.Kill{})
	waitTask(t, p)
	if _, err := io.ReadAll(tunnel); err != nil {
		t.Errorf("the tunnel of an ended task: %v", err)
	}
	if got, want := printed(t, dir, s.Attempt, tasklog.Stdout), strings.Repeat("reached "+good+"\n", 2); got != want {
		t.Errorf("prints %q, want %q", got, want)
	}
}

// TestMissingContainerProcessIsAnEngineFailure checks that a container whose process is not found fails as engine_failed: its program cannot
// have ended, since it waits for the proxy.
func TestMissingContainerProcessIsAnEngineFailure(t *testing.T) {
	a := &attempt{spec: &run.StartSpec{Container: &run.Container{Engine: "unix:///run/engine.sock"}}}
	f, ok := errors.AsType[*run.TaskError](a.serveContainerEgress(0))
	if !ok || f.Reason != muster.EngineFailed {
		t.Errorf("%v: want the reason %s", f, muster.EngineFailed)
	}
}
