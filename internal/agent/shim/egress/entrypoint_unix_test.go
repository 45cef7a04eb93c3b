//go:build unix

package egress

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestMain runs this program as the entrypoint of a container: its arguments are the address of the proxy, and the command.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == EntrypointCommand {
		os.Exit(waitAndExec(os.Args[3:], os.Args[2], testTimeout, os.Stderr))
	}
	os.Exit(m.Run())
}

func TestEntrypoint(t *testing.T) {
	dir := t.TempDir()
	script, text, broken := filepath.Join(dir, "script"), filepath.Join(dir, "text"), filepath.Join(dir, "broken")
	err := errors.Join(os.WriteFile(script, []byte("#!/bin/sh\necho $0 $1 $X $(ulimit -n); exit 3\n"), 0o600), os.Chmod(script, 0o700),
		os.WriteFile(text, []byte("text"), 0o600), os.WriteFile(broken, []byte("#!/no/such/shell\n"), 0o600), os.Chmod(broken, 0o700))
	if err != nil {
		t.Fatal(err)
	}
	l := listen(t)
	for _, c := range []struct {
		args   []string
		out    string
		status int
	}{
		{[]string{script, "an argument"}, script + " an argument set 99", 3},
		{[]string{"script"}, script + " set 99", 3},
		{[]string{"./script"}, "./script set 99", 3},
		{[]string{"nothing"}, "muster: cannot execute nothing in the container: executable file not found in $PATH", exitNotFound},
		{[]string{"/no/such"}, "muster: cannot execute /no/such in the container: no such file or directory", exitNotFound},
		{[]string{broken}, "muster: cannot execute " + broken + " in the container: no such file or directory", exitNotFound},
		{[]string{text}, "muster: cannot execute " + text + " in the container: permission denied", exitCannotExec},
		{[]string{dir}, "muster: cannot execute " + dir + " in the container: is a directory", exitCannotExec},
		{nil, "muster: the image has no command to execute, and the job has no run", exitNotFound},
	} {
		cmd := exec.CommandContext(t.Context(), "/bin/sh", append([]string{"-c", `ulimit -S -n 99; exec "$@"`, "sh", os.Args[0], EntrypointCommand, l.Addr().String()}, c.args...)...)
		cmd.Dir, cmd.Env = dir, []string{"PATH=" + dir + ":/usr/bin:/bin", "X=set"}
		out, err := cmd.CombinedOutput()
		if e, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok || strings.TrimSpace(string(out)) != c.out || e.ExitCode() != c.status {
			t.Errorf("%q prints %q (%v), want %q and %d", c.args, out, err, c.out, c.status)
		}
	}
}

// reserved is a reserved loopback port that refuses connections until it listens.
func reserved(t *testing.T) (fd int, address string) {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	syscall.CloseOnExec(fd)
	t.Cleanup(func() { _ = syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	at, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return fd, fmt.Sprintf("127.0.0.1:%d", at.(*syscall.SockaddrInet4).Port)
}

// TestEntrypointWaitsForTheProxy checks that no program starts before the proxy listens.
func TestEntrypointWaitsForTheProxy(t *testing.T) {
	fd, address := reserved(t)
	file := filepath.Join(t.TempDir(), "file")
	cmd := exec.CommandContext(t.Context(), os.Args[0], EntrypointCommand, address, "/bin/cat", file)
	out := &strings.Builder{}
	cmd.Stdout = out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("it is there"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Listen(fd, 1); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil || out.String() != "it is there" {
		t.Errorf("%q %v", out, err)
	}
	_, address = reserved(t)
	output := &strings.Builder{}
	if status := waitAndExec([]string{"/bin/echo"}, address, time.Millisecond, output); status != exitNoProxy || !strings.HasPrefix(output.String(), fmt.Sprintf("muster: the proxy of the network allowlist did not start within %s: ", time.Millisecond)) {
		t.Errorf("without a proxy: %d %q", status, output)
	}
	if status := waitAndExec(nil, address, time.Millisecond, output); status != exitNoProxy {
		t.Errorf("without a proxy and a program: %d", status)
	}
}
