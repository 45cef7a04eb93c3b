package attack

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/mustertest"
)

const python = "/usr/bin/python3"

// startRootWorker starts a worker as root with the default options.
func startRootWorker(t *testing.T, flags ...string) (*mustertest.Cluster, *mustertest.Process) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root's workers have users to give to tasks")
	}
	if _, err := os.Stat(python); err != nil {
		t.Skip("there is no " + python + " to make sockets with")
	}
	c := mustertest.New(t, t.TempDir())
	return c, c.StartWorker("w1", t.TempDir(), flags...)
}

// runScript runs a script as a task, and returns what it printed to the end.
func runScript(t *testing.T, c *mustertest.Cluster, script string) string {
	t.Helper()
	job := c.Submit(mustertest.ShellSpec("attack", script+"\necho over"))
	if got := c.Wait(job.ID, time.Minute); got.State != muster.JobSucceeded {
		t.Fatalf("the job ended as %s", got.State)
	}
	out, over := strings.CutSuffix(c.Output(muster.TaskID{Job: job.ID}), "over\n")
	if !over {
		t.Fatalf("the task did not end: %s", out)
	}
	return out
}

// sockets is a program that prints which of its attempts to create and connect sockets succeed.
const sockets = `
import socket, sys
def attempt(name, do):
    try:
        do()
        print("BROKEN: " + name)
    except (PermissionError, FileNotFoundError) as e:
        print("refused:", name)
attempt("listen to the traffic of the machine", lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)))
attempt("send any packet", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP))
for path in sys.argv[1:]:
    attempt("connect to " + path, lambda: socket.socket(socket.AF_UNIX).connect(path))
`

// TestTaskOfRootWorkerIsUnprivileged checks that a task of a worker that runs as root has no capabilities, cannot capture the machine's
// traffic, and cannot connect to sockets that only root may use, such as a container engine's.
func TestTaskOfRootWorkerIsUnprivileged(t *testing.T) {
	t.Parallel()
	c, _ := startRootWorker(t)
	listen := func(dir string, mode os.FileMode) string {
		path := filepath.Join(dir, "x.sock")
		l, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		if err := errors.Join(os.Chmod(path, 0o660), os.Chmod(dir, mode)); err != nil {
			t.Fatal(err)
		}
		return path
	}
	open, err := os.MkdirTemp("", "attack") //nolint:usetesting // where everybody comes to, as to /run
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(open) })
	paths := []string{listen(t.TempDir(), 0o700), listen(open, 0o755)}
	for _, engine := range []string{"/var/run/docker.sock", "/run/podman/podman.sock", "/run/containerd/containerd.sock"} {
		if _, err := os.Stat(engine); err == nil {
			paths = append(paths, engine)
		}
	}
	out := runScript(t, c, "id -u; grep -E 'Cap(Eff|Prm|Bnd|Amb|Inh)' /proc/self/status; cat >s.py <<'END'\n"+sockets+"\nEND\n"+python+" s.py "+strings.Join(paths, " "))
	if strings.HasPrefix(out, "0\n") {
		t.Error("the task is root")
	}
	if n := strings.Count(out, "\t0000000000000000\n"); n != 5 {
		t.Errorf("the task has capabilities: %d of its 5 sets are empty", n)
	}
	if strings.Contains(out, "BROKEN") || strings.Count(out, "refused: ") != 2+len(paths) {
		t.Errorf("not all was refused:\n%s", out)
	}
}

// TestTaskSeesNoKeyrings checks that a task sees no keyrings of the machine, and not who has some.
func TestTaskSeesNoKeyrings(t *testing.T) {
	t.Parallel()
	c, _ := startRootWorker(t)
	if out := runScript(t, c, "cat /proc/keys /proc/key-users; echo end"); out != "end\n" {
		t.Errorf("the task sees\n%s", out)
	}
}

// TestTaskCannotSeeOtherProcesses checks that a task sees neither the command lines nor the files of other processes, of other tasks among them,
// and that it can do nothing to them.
func TestTaskCannotSeeOtherProcesses(t *testing.T) {
	t.Parallel()
	for _, sandbox := range []string{"auto", "off"} {
		c, w := startRootWorker(t, "--sandbox", sandbox)
		secret := "secret" + strconv.Itoa(w.PID())
		shm := "/dev/shm/muster-attack-" + strconv.Itoa(w.PID())
		t.Cleanup(func() { _ = os.Remove(shm) })
		victim := c.Submit(mustertest.ShellSpec("victim", fmt.Sprintf("umask 077; echo %s >%s; echo %[1]s >here; exec sh -c 'sleep 600; : --password %[1]s'", secret, shm)))
		c.AwaitRunning(victim.ID, 1)
		task := c.Tasks(victim.ID)[0]
		c.Await("the victim has its secret", time.Minute, func() error {
			if len(mustertest.ProcessesMatching(t, "MUSTER_TASK="+task.ID.String(), "sleep\x00600\x00")) == 0 {
				return errors.New("it has not come to its end")
			}
			return nil
		})
		pids := mustertest.ProcessesMatching(t, "MUSTER_TASK="+task.ID.String(), secret)
		if len(pids) == 0 {
			t.Fatal("the process to kill was not found")
		}
		out := runScript(t, c, fmt.Sprintf(`for p in /proc/[0-9]*; do
			p=${p#/proc/}
			[ $p = $$ ] || grep -l MUSTER_TASK=$MUSTER_TASK /proc/$p/environ >/dev/null 2>&1 || echo sees $p
		done
		cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\0' '\n' | grep pass[w]ord
		for p in 1 %d %d; do
			ls /proc/$p/fd/ >/dev/null 2>&1 && echo sees the files of $p
			kill -CONT $p 2>/dev/null && echo signals $p
		done
		cat %s $MUSTER_OUT/../../*/work/here 2>/dev/null | grep sec[r]et`, w.PID(), pids[0], shm))
		for line := range strings.Lines(out) {
			if line = strings.TrimSpace(line); line != "" && !isEndedProcess(line) {
				t.Errorf("--sandbox %s: %s", sandbox, line)
			}
		}
	}
}

// isEndedProcess reports whether a line is of a process of the task itself, which had ended when it was looked at.
func isEndedProcess(line string) bool {
	pid, ok := strings.CutPrefix(line, "sees ")
	if !ok {
		return false
	}
	_, err := os.Stat("/proc/" + pid)
	return errors.Is(err, os.ErrNotExist)
}
