package attack

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/mustertest"
)

// readTokensScript is a task that prints the command line and the environment of every process that it can
// look at, and whether it can read the environment of the process $WATCHED.
const readTokensScript = `
for p in /proc/[0-9]*; do
	cat $p/cmdline $p/environ 2>/dev/null | tr '\0' '\n'
done
cat /proc/$WATCHED/environ >/dev/null 2>&1 && echo READ''ABLE
echo searched`

// TestTaskCannotReadWorkerTokens checks that a task cannot find its worker's join token, or a key of another API user, in the command line or
// the environment of any process, even if both were passed as arguments.
func TestTaskCannotReadWorkerTokens(t *testing.T) {
	t.Parallel()
	c := mustertest.New(t, t.TempDir())
	dir := t.TempDir()
	w := c.StartWorker("w1", dir, "--token", mustertest.JoinToken)
	held := c.Submit(mustertest.ShellSpec("held", "sleep 600"))
	c.AwaitRunning(held.ID, 1)
	follow := exec.Command(mustertest.Program(t), "logs", "-f", held.ID.String(), "--server", "http://"+c.Addr, "--token="+mustertest.AdminToken)
	follow.Env = []string{"HOME=" + t.TempDir()}
	var output bytes.Buffer
	follow.Stderr = &output
	if err := follow.Start(); err != nil {
		t.Fatal(err)
	}
	ended := func() {
		_ = follow.Process.Kill()
		_ = follow.Wait()
	}
	defer ended()
	awaitTokenHidden(t, c, w.PID(), mustertest.JoinToken)
	awaitTokenHidden(t, c, follow.Process.Pid, mustertest.AdminToken)

	spec := mustertest.ShellSpec("reader", readTokensScript)
	spec.Tasks[0].Env = map[string]string{"WATCHED": strconv.Itoa(w.PID())}
	job := c.Submit(spec)
	if got := c.Wait(job.ID, time.Minute); got.State != muster.JobSucceeded {
		t.Fatalf("the job ended as %s", got.State)
	}
	out := c.Output(muster.TaskID{Job: job.ID})
	if !strings.Contains(out, "searched") || !strings.Contains(out, "MUSTER_OUT=") {
		t.Errorf("the task did not list itself:\n%s", out)
	}
	for _, token := range []string{mustertest.JoinToken, mustertest.AdminToken, "READABLE"} {
		if strings.Contains(out, token) {
			t.Errorf("the task found %s (READABLE: the environment of the worker)", token)
		}
	}
	for _, pid := range append(mustertest.ShimPIDs(t, dir), mustertest.TaskPIDs(t, dir)...) {
		checkNoToken(t, pid, "environ")
		checkNoToken(t, pid, "cmdline")
	}
	ended()
	if !strings.Contains(output.String(), "use --token-file FILE") || strings.Count(output.String(), "--token-file") != 1 {
		t.Errorf("a key among the arguments is not warned of, in one line: %s", &output)
	}
}

// TestSecretsInOptionsAreHidden checks that no other process finds the secrets that are parts of options: keys and passwords in URLs, tokens of other
// systems and of gateways to them.
func TestSecretsInOptionsAreHidden(t *testing.T) {
	t.Parallel()
	c := mustertest.New(t, t.TempDir())
	const secret = "the-secret-of-an-option"
	for _, args := range [][]string{
		{"worker", "qubix", "--backend", "http://127.0.0.1:1/k/" + secret},
		{"worker", "qubix", "--backend", "http://user:" + secret + "@127.0.0.1:1"},
		{"bridge", "trainforge", "--scheduler", "http://127.0.0.1:1", "--scheduler-token=" + secret, "--server", "http://" + c.Addr},
		{"server", "--listen", "127.0.0.1:0", "--dialect", "mloc=127.0.0.1:0,redis=embedded:" + strings.TrimPrefix(mustertest.ReservePort(t), "127.0.0.1:") + ",token=" + secret},
	} {
		cmd := exec.Command(mustertest.Program(t), args...)
		cmd.Env = []string{"HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH"), "MUSTER_DATA=" + t.TempDir(), "MUSTER_TOKEN=" + mustertest.AdminToken, "MUSTER_ENGINE=none"}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
		c.Await("the process conceals its secret", time.Minute, func() error {
			line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", cmd.Process.Pid))
			if err == nil && (!bytes.Contains(line, []byte(args[len(args)-2])) || bytes.Contains(line, []byte(secret))) {
				err = fmt.Errorf("its arguments are %q", line)
			}
			return err
		})
	}
}

// TestUpgradeHidesTokens checks that a worker which replaces itself by its next program does not show its tokens
// again.
func TestUpgradeHidesTokens(t *testing.T) {
	t.Parallel()
	c := mustertest.New(t, t.TempDir())
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(mustertest.JoinToken+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, flags := range map[string][]string{"argument": {"--token", mustertest.JoinToken}, "file": {"--token-file", file}} {
		w := c.StartWorker(name, t.TempDir(), flags...)
		w.Signal(syscall.SIGUSR2)
		c.Await("the worker is its next program", time.Minute, func() error {
			if starts := strings.Split(w.Log(), "upgrading in place"); len(starts) < 2 || !strings.Contains(starts[1], "msg=connected") {
				return errors.New("it is not")
			}
			return nil
		})
		awaitTokenHidden(t, c, w.PID(), mustertest.JoinToken)
		if line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", w.PID())); err != nil || bytes.Contains(line, []byte("--token")) {
			t.Errorf("the next program, which already has the token, gets it again in its arguments %q (%v)", line, err)
		}
	}
}

// awaitTokenHidden waits until the command line of a process, which has its token among the arguments, does not show it.
func awaitTokenHidden(t *testing.T, c *mustertest.Cluster, pid int, token string) {
	t.Helper()
	c.Await(fmt.Sprintf("process %d conceals its token", pid), time.Minute, func() error {
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err != nil {
			return err
		}
		if !bytes.Contains(line, []byte("--server")) || bytes.Contains(line, []byte(token)) {
			return fmt.Errorf("its arguments are %q", line)
		}
		return nil
	})
}

// checkNoToken checks a file of a process for tokens.
func checkNoToken(t *testing.T, pid int, name string) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, name))
	if err != nil {
		return // it has ended
	}
	for _, token := range []string{mustertest.JoinToken, mustertest.AdminToken} {
		if bytes.Contains(text, []byte(token)) {
			t.Errorf("the %s of process %d shows %s", name, pid, token)
		}
	}
}
