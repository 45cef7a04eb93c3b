package shim

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/testkit"
)

// sleeper is a task that runs until it is stopped.
func sleeper(t *testing.T) *run.StartSpec {
	t.Helper()
	s := shellTask(t, `echo ready > "$BASE/ready"; exec sleep 1000`)
	s.Env = append(s.Env, "GREETING=hello")
	return s
}

// execute runs a command in an attempt and returns what it printed.
func execute(t *testing.T, c *Client, s *run.StartSpec, input string, x *run.ExecSpec) (stdout, stderr string, exit run.ExecExit) {
	t.Helper()
	p, err := c.Exec(t.Context(), s.Attempt, x)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.Close() }()
	go func() {
		in := p.Stdin()
		_, _ = io.WriteString(in, input)
		_ = in.Close()
	}()
	var out, errs bytes.Buffer
	done := make(chan error, 1)
	go func() {
		_, err := io.Copy(&out, p.Stdout())
		done <- err
	}()
	if p.Stderr() != nil {
		_, _ = io.Copy(&errs, p.Stderr())
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	return out.String(), errs.String(), p.Wait()
}

func TestExec(t *testing.T) {
	forEachMode(t, func(t *testing.T, m mode) {
		t.Helper()
		dir := t.TempDir()
		c := openClient(t, dir, m)
		s := sleeper(t)
		startTask(t, c, s)
		sh := func(text string) *run.ExecSpec { return &run.ExecSpec{Argv: []string{"sh", "-c", text}} }
		withInput := sh("cat; exit 3")
		withInput.Stdin = true
		if out, _, x := execute(t, c, s, "some input", withInput); out != "some input" || x != (run.ExecExit{Code: 3}) {
			t.Errorf("got %q, %+v", out, x)
		}
		env := sh(`echo "$GREETING $MORE $MUSTER_OUT"; pwd; echo to stderr >&2`)
		env.Env = []string{"MORE=more", "MUSTER_OUT=/not/yours"}
		out, errs, _ := execute(t, c, s, "", env)
		if want := "hello more " + strings.TrimPrefix(s.EnvTag, "MUSTER_OUT=") + "\n" + s.Dir + "\n"; out != want || errs != "to stderr\n" {
			t.Errorf("got %q and %q, want %q", out, errs, want)
		}
		if _, _, x := execute(t, c, s, "", sh("kill -TERM $$")); x.Signal != "SIGTERM" || x.Code != 128+15 {
			t.Errorf("a killed command: %+v", x)
		}
		for name, code := range map[string]int{"no-such-program": run.ExecNotFound, "./no-such-file": run.ExecNotFound, "/etc/passwd": run.ExecDenied, "/etc": run.ExecDenied} {
			_, err := c.Exec(t.Context(), s.Attempt, &run.ExecSpec{Argv: []string{name}})
			if e, ok := errors.AsType[*run.ExecError](err); !ok || e.Code != code {
				t.Errorf("%s: %v", name, err)
			}
		}
		other := s.Attempt
		other.N++
		if _, err := c.Exec(t.Context(), other, sh("true")); err == nil {
			t.Error("a command runs in an unknown attempt")
		}
	})
}

func TestExecWithATerminal(t *testing.T) {
	forEachMode(t, func(t *testing.T, m mode) {
		t.Helper()
		c := openClient(t, t.TempDir(), m)
		s := sleeper(t)
		startTask(t, c, s)
		p, err := c.Exec(t.Context(), s.Attempt, &run.ExecSpec{Argv: []string{"sh"}, TTY: true, Rows: 33, Columns: 99})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = p.Close() }()
		defer time.AfterFunc(time.Minute, func() { _ = p.Close() }).Stop() // a read fails then
		var seen strings.Builder
		await := func(input, want string) {
			t.Helper()
			if _, err := io.WriteString(p.Stdin(), input); err != nil {
				t.Fatal(err)
			}
			b := make([]byte, 4096)
			for !strings.Contains(seen.String(), want) {
				n, err := p.Stdout().Read(b)
				if err != nil {
					t.Fatalf("after %q: %v", seen.String(), err)
				}
				seen.Write(b[:n])
			}
		}
		await("stty size; tty\n", "33 99\r\n")
		await("", "/dev/pts/")
		if err := p.Resize(50, 120); err != nil {
			t.Fatal(err)
		}
		await("stty size\n", "50 120\r\n")
		await("sh -c 'echo sleep $((40+1)); exec sleep 1000'\n", "sleep 41") // it is the one that Ctrl-C interrupts
		await("\x03", "^C")
		await("echo still $((40+2))\n", "still 42")
		if err := p.Stdin().Close(); err != nil {
			t.Fatal(err)
		}
		if x := p.Wait(); x.Code != 0 {
			t.Errorf("the shell ended with %+v", x)
		}
	})
}

// A command ends with its task, before the task's end is reported.
func TestExecEndsWithItsTask(t *testing.T) {
	forEachMode(t, func(t *testing.T, m mode) {
		t.Helper()
		c := openClient(t, t.TempDir(), m)
		s := sleeper(t)
		task, _ := startTask(t, c, s)
		p, err := c.Exec(t.Context(), s.Attempt, &run.ExecSpec{Argv: []string{"sh", "-c", "trap '' TERM HUP; echo $$; sleep 1000"}})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = p.Close() }()
		pid := readPID(t, p)
		task.Stop(run.ErrShutDown, s.Kill)
		waitTask(t, task)
		if syscall.Kill(pid, 0) == nil && procState(pid) != 'Z' {
			t.Error("the command outlives its task")
		}
		if x := p.Wait(); !x.TaskEnded || x.Signal != "SIGKILL" {
			t.Errorf("the command ended with %+v", x)
		}
		if _, err := c.Exec(t.Context(), s.Attempt, &run.ExecSpec{Argv: []string{"true"}}); err == nil {
			t.Error("a command starts in an ended task")
		}
	})
}

// The end of the client ends the command, also one that ignores signals, and not the task.
func TestExecEndsWithItsConnection(t *testing.T) {
	forEachMode(t, func(t *testing.T, m mode) {
		t.Helper()
		c := openClient(t, t.TempDir(), m)
		s := sleeper(t)
		task, _ := startTask(t, c, s)
		for _, text := range []string{"echo $$; exec sleep 1000", "trap '' HUP; echo $$; while :; do sleep 1000; done"} {
			p, err := c.Exec(t.Context(), s.Attempt, &run.ExecSpec{Argv: []string{"sh", "-c", text}})
			if err != nil {
				t.Fatal(err)
			}
			pid := readPID(t, p)
			_ = p.Close()
			testkit.Await(t, "the command to end", func() bool { return procState(pid) == 0 || procState(pid) == 'Z' })
		}
		if task.Exit() != nil {
			t.Errorf("the task ended with %+v", task.Exit())
		}
	})
}

func readPID(t *testing.T, p run.ExecProc) int {
	t.Helper()
	b := make([]byte, 32)
	n, err := p.Stdout().Read(b)
	if err != nil {
		t.Fatal(err)
	}
	pid := 0
	for _, d := range strings.TrimSpace(string(b[:n])) {
		pid = pid*10 + int(d-'0')
	}
	return pid
}

// A command leaves the task's own daemons alone.
func TestExecKeepsDaemonsOfTheTask(t *testing.T) {
	forEachMode(t, func(t *testing.T, m mode) {
		t.Helper()
		c := openClient(t, t.TempDir(), m)
		s := shellTask(t, `setsid sleep 999 & echo $! > "$BASE/daemon"; exec sleep 1000`)
		startTask(t, c, s)
		_, _, _ = execute(t, c, s, "", &run.ExecSpec{Argv: []string{"sh", "-c", `while ! [ -s "$BASE/daemon" ]; do sleep 0.01; done`}})
		out, _, x := execute(t, c, s, "", &run.ExecSpec{Argv: []string{"sh", "-c", `kill -0 $(cat "$BASE/daemon") && echo alive`}})
		if out != "alive\n" || x.Code != 0 {
			t.Errorf("the daemon of the task: %q, %+v", out, x)
		}
	})
}

// A shim of an earlier build would take the connection for that of a new worker: it gets none.
func TestNoExecWithAnOlderShim(t *testing.T) {
	c := openDetached(t, t.TempDir())
	s := sleeper(t)
	task, _ := startTask(t, c, s)
	sc, _ := c.find(s.Attempt)
	sc.execs = false
	if _, err := c.Exec(t.Context(), s.Attempt, &run.ExecSpec{Argv: []string{"true"}}); err == nil || !strings.Contains(err.Error(), "too old") {
		t.Errorf("got %v", err)
	}
	select {
	case <-task.Done():
		t.Error("the task ended")
	case <-time.After(100 * time.Millisecond):
	}
}

func TestMaximumOfCommands(t *testing.T) {
	c := openDetached(t, t.TempDir())
	s := sleeper(t)
	startTask(t, c, s)
	for range maxExecs {
		p, err := c.Exec(t.Context(), s.Attempt, &run.ExecSpec{Argv: []string{"sleep", "1000"}})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = p.Close() }()
	}
	if _, err := c.Exec(t.Context(), s.Attempt, &run.ExecSpec{Argv: []string{"true"}}); err == nil || !strings.Contains(err.Error(), "maximum") {
		t.Errorf("got %v", err)
	}
}

// A command has the user, the sandbox, the umask and the network of the task, and none of this process's capabilities.
func TestExecIsolated(t *testing.T) {
	if syscall.Geteuid() != 0 {
		t.Skip("only root changes users and networks")
	}
	c := openDetached(t, t.TempDir())
	s := shellTask(t, `echo "$(id -u):$(id -g) $(readlink /proc/self/ns/net) $(grep -E 'NoNewPrivs|CapBnd|CapEff' /proc/self/status | tr -s '\n\t' '  ')" > "$BASE/task"; exec sleep 1000`)
	allowAll(t, s.Dir)
	const user = 45678
	s.Isolation = &run.IsolationSpec{NoNewPrivileges: true, NoNet: true, User: &run.User{UID: user, GID: user}}
	task, _ := startTask(t, c, s)
	testkit.Await(t, "the task to run", func() bool { b, _ := os.ReadFile(filepath.Join(s.Dir, "task")); return len(b) > 0 })
	want, err := os.ReadFile(filepath.Join(s.Dir, "task"))
	if err != nil {
		t.Fatal(err)
	}
	out, errs, x := execute(t, c, s, "", &run.ExecSpec{Argv: []string{"sh", "-c",
		`echo "$(id -u):$(id -g) $(readlink /proc/self/ns/net) $(grep -E 'NoNewPrivs|CapBnd|CapEff' /proc/self/status | tr -s '\n\t' '  ')"`}})
	if out != string(want) || !strings.HasPrefix(out, "45678:45678 ") || x.Code != 0 {
		t.Errorf("the command is %q (%s), the task %q", out, errs, want)
	}
	if own, err := os.Readlink("/proc/self/ns/net"); err != nil || strings.Contains(out, own) {
		t.Errorf("the command is in the network of the worker: %q, %v", out, err)
	}
	// A terminal belongs to the task's user.
	out, _, _ = execute(t, c, s, "", &run.ExecSpec{TTY: true, Argv: []string{"sh", "-c", "stat -c %u:%a $(tty)"}})
	if !strings.HasPrefix(out, "45678:") {
		t.Errorf("the terminal is of %q", out)
	}
	task.Stop(run.ErrShutDown, s.Kill)
	waitTask(t, task)
}

// allowAll opens a folder, and those above it, to the users of tasks.
func allowAll(t *testing.T, dir string) {
	t.Helper()
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	for d := filepath.Dir(dir); strings.HasPrefix(d, os.TempDir()) && d != os.TempDir(); d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o711); err != nil {
			t.Fatal(err)
		}
	}
}
