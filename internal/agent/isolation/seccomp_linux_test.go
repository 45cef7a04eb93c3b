package isolation

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/isolation/view"
	"github.com/muster-dev/muster/internal/agent/run"
)

// callsArg is the first argument by which this program makes calls that tasks may not make.
const callsArg = "make-calls"

// makeCalls prints the results of calls, after it has started a program, as Go programs do.
func makeCalls() {
	out, err := exec.Command("/bin/sh", "-c", "grep ^Seccomp: /proc/self/status; umask").Output()
	fmt.Printf("%q %v\n", out, err)
	_, _, errno := unix.Syscall(unix.SYS_KEYCTL, 0, ^uintptr(2), 0)
	fmt.Println("keyctl:", unix.ErrnoName(errno))
	args := struct{ flags, pidfd, childTID, parentTID, exitSignal, stack, stackSize, tls, setTID, setTIDSize, cgroup uint64 }{
		flags: unix.CLONE_NEWUSER, exitSignal: uint64(unix.SIGCHLD),
	}
	pid, _, errno := unix.RawSyscall(unix.SYS_CLONE3, uintptr(unsafe.Pointer(&args)), unsafe.Sizeof(args), 0)
	if pid == 0 && errno == 0 {
		unix.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
	}
	fmt.Println("user namespace:", unix.ErrnoName(errno))
}

// makeCalls runs this program's makeCalls as the task.
func (t *task) makeCalls() string {
	t.env.Helper()
	program := filepath.Join(t.folders.Work, "calls")
	self, err := os.ReadFile("/proc/self/exe")
	if err == nil {
		err = errors.Join(os.WriteFile(program, self, 0o600), os.Chmod(program, 0o755))
	}
	if err != nil {
		t.env.Fatal(err)
	}
	out, _ := t.start(program, "calls", callsArg).wait()
	return out
}

const filtered = `"Seccomp:\t2\n00` // and the other digits of the umask

// TestTasksCannotMakeRareCalls checks that a task, with its own network or the worker's, is in the filter of system calls, and that
// it cannot create a user namespace by clone3 either.
func TestTasksCannotMakeRareCalls(t *testing.T) {
	if err := trySeccomp(); err != nil {
		t.Skipf("seccomp is not available: %v", err)
	}
	w := newEnv(t, nil)
	for _, network := range []string{"", muster.NetworkNone} {
		task := w.task(func(r *run.Task) { r.Spec.Network = network })
		if network != "" && tryNetwork() != nil {
			continue
		}
		out := task.makeCalls()
		want := "user namespace: ENOSYS"
		switch unified := slices.ContainsFunc(task.spec.Cgroups, func(g run.Cgroup) bool { return g.Unified }); {
		case unified && task.spec.View != nil:
			want = "user namespace: EPERM"
		case unified && network == "":
			want = "" // not promised
		}
		if !strings.HasPrefix(out, filtered) || !strings.Contains(out, "keyctl: EPERM") || !strings.HasSuffix(out, want) {
			t.Errorf("network %q: the task prints %s, want %s", network, out, want)
		}
	}
	w = newEnv(t, func(c *Config) { c.Sandbox = Off })
	if out := w.task(nil).makeCalls(); strings.Contains(out, filtered) || strings.Contains(out, "keyctl: EPERM") {
		t.Errorf("with --sandbox off the task prints %s", out)
	}
}

// TestNoUserNamespacesInGroupsOfVersion2 checks that a task whose control group needs clone3 cannot create a user namespace with it.
func TestNoUserNamespacesInGroupsOfVersion2(t *testing.T) {
	requireRoot(t)
	requireView(t)
	if err := trySeccomp(); err != nil {
		t.Skipf("seccomp is not available: %v", err)
	}
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "cgroup2", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		t.Skipf("control groups of version 2 cannot be mounted: %v", err)
	}
	group := filepath.Join(dir, fmt.Sprintf("muster-test-%d", os.Getpid()))
	t.Cleanup(func() {
		if err := errors.Join(unix.Rmdir(group), unix.Unmount(dir, 0)); err != nil {
			t.Error(err)
		}
	})
	if err := os.Mkdir(group, 0o755); err != nil {
		t.Fatal(err)
	}
	task := newEnv(t, nil).task(nil)
	own := task.spec.Cgroups
	t.Cleanup(func() { task.spec.Cgroups = own })
	task.spec.Cgroups = []run.Cgroup{{Path: group, Unified: true}}
	if !task.spec.View.NoUserNamespaces || !view.NoUserNamespaces(task.spec.View) {
		t.Fatal("the view allows user namespaces")
	}
	if out := task.makeCalls(); !strings.HasPrefix(out, filtered) || !strings.HasSuffix(out, "keyctl: EPERM\nuser namespace: EPERM") {
		t.Errorf("the task prints %s", out)
	}
	// The root that it has is that of all others.
	task.expect("pwd; ls -d /proc/self/root/usr/bin; readlink /proc/self/cwd",
		task.folders.Work+"\n/proc/self/root/usr/bin\n"+task.folders.Work, 0)

	// Without the filter, in the same group, only the missing privileges of a plain view decide.
	task.spec.Seccomp = false
	task.spec.View = &run.View{Hide: task.spec.View.Hide, Show: task.spec.View.Show}
	if out := task.makeCalls(); !strings.Contains(out, "Seccomp:\\t0") || strings.Contains(out, "keyctl: EPERM") {
		t.Errorf("the task that is not restricted prints %s", out)
	}
}

// TestToolsCannotMakeRareCalls checks that builds of packages are in the filter as well.
func TestToolsCannotMakeRareCalls(t *testing.T) {
	if err := trySeccomp(); err != nil {
		t.Skipf("seccomp is not available: %v", err)
	}
	w := newEnv(t, nil)
	p, err := spawnIn(t, w.limits.PrepareTool(nil, nil), "/", "/bin/sh", "sh", "-c", "grep ^Seccomp: /proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	if out, _ := p.wait(); out != "Seccomp:\t2" {
		t.Errorf("a tool prints %q", out)
	}
}

// TestProgramsWorkInTheFilter runs what is installed of several languages as tasks: with processes, threads, sockets and files.
func TestProgramsWorkInTheFilter(t *testing.T) {
	w := newEnv(t, nil)
	for _, argv := range [][]string{
		{"/bin/sh", "-c", "echo a | cat; (sleep 0.01; echo b) & wait; exec /bin/echo c"},
		{"/usr/bin/perl", "-e", "print `echo a`; fork; wait"},
		{"/usr/bin/python3", "-c", `
import asyncio, multiprocessing, os, socket, subprocess, threading
from multiprocessing import shared_memory
s = shared_memory.SharedMemory(create=True, size=4096)
s.close(); s.unlink()
for start in ("fork", "forkserver"):
    with multiprocessing.get_context(start).Pool(2) as pool:
        assert pool.map(abs, [-1, 2]) == [1, 2]
async def child():
    p = await asyncio.create_subprocess_exec("echo", "a", stdout=subprocess.PIPE)
    assert (await p.communicate())[0] == b"a\n"
asyncio.run(child())
thread = threading.Thread(target=os.getpid)
thread.start(); thread.join()
server = socket.create_server(("127.0.0.1", 0))
socket.create_connection(server.getsockname())
`},
		{"/usr/bin/node", "-e", `
const { Worker } = require("worker_threads"), fs = require("fs")
require("child_process").execSync("true")
fs.readFile("/etc/hostname", () => new Worker("1", { eval: true }).on("exit", process.exit))
`},
	} {
		if _, err := os.Stat(argv[0]); err != nil {
			continue
		}
		p := w.task(nil).start(argv[0], argv...)
		if out, code := p.wait(); code != 0 {
			t.Errorf("%s exits with %d: %s", argv[0], code, out)
		}
	}
}
