package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/execwire"
	"github.com/muster-dev/muster/internal/mustertest"
	"github.com/muster-dev/muster/internal/mustertest/containertest"
)

// runClient runs a command of the command line, and returns what it printed and its exit status.
func (b *containerEnv) runClient(stdin string, args ...string) (stdout, stderr string, status int) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, mustertest.Program(b.t), args...)
	cmd.Env = append(os.Environ(), "MUSTER_SERVER="+b.Client.URL(), "MUSTER_TOKEN="+mustertest.AdminToken)
	cmd.Stdin = strings.NewReader(stdin)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if cmd.ProcessState == nil {
		b.t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// TestExecInContainer executes commands, opens a terminal and copies files in tasks that run in containers.
func TestExecInContainer(t *testing.T) {
	t.Parallel()
	b := newContainerEnv(t, containertest.SharedEngine(t))
	b.start("--slots", "2")
	spec := b.shellSpec("works", `echo kept > here; exec sleep 1000`)
	spec.Tasks[0].Env = map[string]string{"OF_TASK": "task"}
	job := b.Submit(spec)
	b.AwaitRunning(job.ID, 1)
	id := muster.TaskID{Job: job.ID}
	b.Await("the task has started", time.Minute, func() error {
		if _, errs, status := b.runClient("", "exec", id.String(), "--", "test", "-e", "here"); status != 0 {
			return fmt.Errorf("exit status %d: %s", status, errs)
		}
		return nil
	})

	for _, c := range []struct {
		name, stdin string
		args        []string
		stdout      string
		stderr      string // a part of it
		status      int
	}{
		{name: "streams and exit code", args: []string{"exec", id.String(), "--", "sh", "-c", "echo out; echo err >&2; exit 7"}, stdout: "out\n", stderr: "err\n", status: 7},
		{name: "environment", args: []string{"exec", "-e", "EXTRA=a b", id.String(), "--", "sh", "-c", `echo "$OF_TASK $EXTRA $MUSTER_TASK"`}, stdout: "task a b " + id.String() + "\n"},
		{name: "the task's folder", args: []string{"exec", id.String(), "--", "cat", "here"}, stdout: "kept\n"},
		{name: "another folder", args: []string{"exec", "-w", "/home/user", id.String(), "--", "pwd"}, stdout: "/home/user\n"},
		{name: "a missing folder", args: []string{"exec", "-w", "/missing", id.String(), "--", "pwd"}, stderr: "no such program or folder", status: 127},
		{name: "standard input", stdin: "in\x00put", args: []string{"exec", "-i", id.String(), "--", "cat"}, stdout: "in\x00put"},
		{name: "no standard input", args: []string{"exec", "--interactive=false", id.String(), "--", "cat"}},
		{name: "a missing program", args: []string{"exec", id.String(), "--", "missing-program"}, stderr: "there is no such program", status: 127},
		{name: "no program", args: []string{"exec", id.String(), "--", "/etc"}, stderr: "permission denied", status: 126},
		{name: "a script for the shell", stdin: "echo $OF_TASK\nexit 5\n", args: []string{"shell", id.String()}, stdout: "task\n", status: 5},
	} {
		if out, errs, status := b.runClient(c.stdin, c.args...); out != c.stdout || !strings.Contains(errs, c.stderr) || status != c.status {
			t.Errorf("%s: exit status %d, it printed %q and %q", c.name, status, out, errs)
		}
	}

	b.testTerminal(id)
	b.testCopies(id)

	x := startExec(t, b.Cluster, id, "echo runs; exec sleep 54322")
	b.Await("the command runs", time.Minute, func() error {
		if len(mustertest.ProcessesMatching(t, "sleep", "54322")) == 0 {
			return fmt.Errorf("it does not run")
		}
		return nil
	})
	if _, err := b.Client.Cancel(t.Context(), job.ID, nil); err != nil {
		t.Fatal(err)
	}
	if end := awaitEnd(t, x); end != "exit 137 true" {
		t.Errorf("a command ended with its task: %q", end)
	}
	b.Wait(job.ID, time.Minute)
	if left := mustertest.ProcessesMatching(t, "sleep", "54322"); len(left) > 0 {
		t.Errorf("processes %v of the command outlive the task", left)
	}
	b.awaitCleanup()
}

// testTerminal runs a command with a terminal, which changes its size.
func (b *containerEnv) testTerminal(id muster.TaskID) {
	t := b.t
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	conn, err := b.Client.Exec(ctx, id, &execwire.Start{Command: &execwire.Command{
		Argv: []string{"sh", "-c", `await() { while [ "$(stty size 2>/dev/null)" != "$*" ]; do sleep 0.02; done; echo "size $*"; }; tty; await 11 77; read line; await 22 99; echo "read $line $TERM"; sleep 54323; exit 3`},
		TTY:  true, Stdin: true, Size: execwire.Size{Rows: 11, Columns: 77}, Term: "vt100",
	}})
	if err != nil {
		t.Fatal(err)
	}
	x := &execution{conn: conn, end: make(chan string, 1)}
	go func() {
		last := ""
		err := conn.Run(ctx, func(f *execwire.Frame) error {
			if f.Exit != nil {
				last = fmt.Sprintf("exit %d %v", f.Exit.Code, f.Exit.TaskEnded)
				return io.EOF
			}
			return nil
		})
		if last == "" {
			last = fmt.Sprint(err)
		}
		x.end <- last
	}()
	var out []byte
	r := conn.Reader(ctx, execwire.Stdout)
	await := func(text string) {
		t.Helper()
		buf := make([]byte, 4096)
		for !strings.Contains(string(out), text) {
			n, err := r.Read(buf)
			if out = append(out, buf[:n]...); err != nil {
				t.Fatalf("%v, after the output %q", err, out)
			}
		}
	}
	await("/dev/pts/")
	await("size 11 77\r\n")
	if err := conn.Send(ctx, &execwire.Frame{Resize: &execwire.Size{Rows: 22, Columns: 99}}); err != nil {
		t.Fatal(err)
	}
	in := conn.Writer(ctx, execwire.Stdin)
	if _, err := in.Write([]byte("words\r")); err != nil {
		t.Fatal(err)
	}
	await("size 22 99\r\n")
	await("read words vt100\r\n")
	if _, err := in.Write([]byte{3}); err != nil { // Ctrl-C
		t.Fatal(err)
	}
	if end := awaitEnd(t, x); end != "exit 130 false" {
		t.Errorf("Ctrl-C: %q after %q", end, out)
	}
}

// testCopies copies a file and a folder to a task and back.
func (b *containerEnv) testCopies(id muster.TaskID) {
	t := b.t
	dir := t.TempDir()
	contents := strings.Repeat("\x00\xffbytes", 100_000)
	if err := os.MkdirAll(filepath.Join(dir, "folder", "sub"), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "folder", "sub", "file"), []byte(contents), 0o600); err != nil {
		t.Fatal(err)
	}
	back := filepath.Join(dir, "back")
	for _, args := range [][]string{
		{"cp", filepath.Join(dir, "folder"), id.String() + ":"},
		{"exec", id.String(), "--", "sh", "-c", "cp -r folder $MUSTER_OUT/made && rm -r folder"},
		{"cp", id.String() + ":$MUSTER_OUT/made", back},
	} {
		if out, errs, status := b.runClient("", args...); status != 0 {
			t.Fatalf("%v: exit status %d: %s%s", args, status, out, errs)
		}
	}
	if got, err := os.ReadFile(filepath.Join(back, "sub", "file")); err != nil || string(got) != contents {
		t.Errorf("the copy has %d bytes (%v)", len(got), err)
	}
	if _, errs, status := b.runClient("", "cp", id.String()+":/etc/passwd", back); status == 0 || !strings.Contains(errs, "outside the task's folders") {
		t.Errorf("a file of the image: exit status %d: %s", status, errs)
	}
}

// TestShellInImageWithoutOne opens a shell in a container that has only one program.
func TestShellInImageWithoutOne(t *testing.T) {
	t.Parallel()
	b := newContainerEnv(t, containertest.SharedEngine(t))
	b.start()
	full := containertest.ShellImage(t)
	image := containertest.LoadImage(t, b.host, "muster-e2e-shellless:1", containertest.ImageSpec{
		Files: map[string]string{"/sleep": full.Files["/bin/busybox"]}, Folders: []string{"/tmp"},
	})
	spec := &muster.Spec{Name: "bare", Tasks: []muster.TaskSpec{{Image: image, Run: &muster.Command{Argv: []string{"/sleep", "1000"}}}}}
	job := b.Submit(spec)
	b.AwaitRunning(job.ID, 1)
	id := muster.TaskID{Job: job.ID}
	if out, errs, status := b.runClient("", "shell", id.String()); status != 127 || !strings.Contains(errs, "task "+id.String()+" has no shell") {
		t.Errorf("exit status %d, it printed %q and %q", status, out, errs)
	}
	if out, errs, status := b.runClient("", "exec", id.String(), "--", "/sleep", "0"); status != 0 {
		t.Errorf("a program of the image: exit status %d, it printed %q and %q", status, out, errs)
	}
	if _, err := b.Client.Cancel(t.Context(), job.ID, nil); err != nil {
		t.Fatal(err)
	}
	b.Wait(job.ID, time.Minute)
	b.awaitCleanup()
}
