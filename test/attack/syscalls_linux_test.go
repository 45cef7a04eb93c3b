package attack

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/mustertest"
)

// nobody is an ordinary user.
const nobody = 65534

// startOrdinaryWorker starts a worker as an ordinary user.
func startOrdinaryWorker(t *testing.T, flags ...string) *mustertest.Cluster {
	t.Helper()
	c := mustertest.New(t, t.TempDir())
	if os.Geteuid() != 0 {
		c.StartWorker("ordinary", t.TempDir(), flags...)
		return c
	}
	dir := mustertest.SharedDir(t)
	program, data := filepath.Join(dir, "muster"), filepath.Join(dir, "data")
	text, err := os.ReadFile(mustertest.Program(t))
	if err == nil {
		err = errors.Join(os.WriteFile(program, text, 0o600), os.Chmod(program, 0o755), os.Mkdir(data, 0o700), os.Chown(data, nobody, nobody))
	}
	start := filepath.Join(dir, "start")
	script := fmt.Sprintf("#!/bin/sh\nexec setpriv --reuid %d --regid %[1]d --clear-groups --inh-caps -all env HOME=%[2]s MUSTER_CONFIG=%[2]s/context.json %[3]s \"$@\"\n", nobody, data, program)
	if err = errors.Join(err, os.WriteFile(start, []byte(script), 0o600), os.Chmod(start, 0o755)); err != nil {
		t.Fatal(err)
	}
	c.StartWorkerProgram(start, "ordinary", data, flags...)
	return c
}

// deniedCalls are what no task can do, each with a Python expression that tries it. Its value is "worked" or the name of an error: EPERM
// in the filter of system calls, and something else without, since its arguments are accepted or refused by the call itself.
var deniedCalls = []struct {
	statement string
	try       string // that must print EPERM
}{
	{"create a user namespace with clone3", "'EPERM' if clone3(0x10000000) in ('EPERM', 'ENOSYS') else 'worked'"},
	{"set up io_uring", "call(IO_URING_SETUP, 1, 1)"},
	{"load BPF programs", "call(BPF, 0, 1, 1 << 20)"},
	{"use keyrings", "call(KEYCTL, 0, -3, 0)"},
	{"add keys", "call(ADD_KEY, 1, 1, 1, 1, -2)"},
	{"request keys", "call(REQUEST_KEY, 1, 1, 1, 0)"},
	{"use performance counters", "call(PERF_EVENT_OPEN, 0, 0, 0, 0, -1)"},
	{"handle page faults", "call(USERFAULTFD, 1)"},
	{"leave namespaces", "call(UNSHARE, 0x200)"},
	{"enter namespaces", "call(SETNS, -1, 0)"},
	{"create a user namespace with unshare", "call(UNSHARE, 0x10000000)"},
	{"create a user namespace with clone", "call(CLONE, 0x10000000 | 0x10000, 0, 0, 0, 0)"},
	{"mount", "call(MOUNT, 0, 1, 0, 0, 0)"},
	{"unmount", "call(UMOUNT2, 1, 1 << 30)"},
	{"open mounts", "call(OPEN_TREE, -100, b'/', 0)"},
	{"change its root", "call(CHROOT, 1)"},
	{"watch file systems", "call(FANOTIFY_INIT, 0x200, 0)"},
	{"disable the randomization of addresses", "call(PERSONALITY, 0x40000)"},
	{"advise memory of others", "call(PROCESS_MADVISE, -1, 0, 0, 999, 0)"},
	{"compare processes", "call(KCMP, os.getpid(), os.getpid(), 1, 0, 0)"},
	{"set quotas", "call(QUOTACTL, -1, 1, 0, 0)"},
	{"use the kernel's cryptography", "sock(38, 5)"},
	{"connect to virtual machines", "sock(40, 1)"},
	{"use system calls of other architectures", "foreign()"},
}

// callsProgram is the beginning of a Python program with what deniedCalls need; its arguments are the numbers of calls.
const callsProgram = `
import ctypes, errno, mmap, os, socket
libc = ctypes.CDLL(None, use_errno=True)
def result(r):
    return "worked" if r >= 0 else errno.errorcode.get(ctypes.get_errno(), "?")
def call(nr, *args):
    return result(libc.syscall(ctypes.c_long(nr), *[a if isinstance(a, bytes) else ctypes.c_long(a) for a in args]))
def clone3(flags):
    args = (ctypes.c_uint64 * 11)(flags, 0, 0, 0, 17)
    r = libc.syscall(ctypes.c_long(CLONE3), args, ctypes.c_long(88))
    if r == 0:
        os._exit(0)
    return result(r)
def sock(family, kind):
    try:
        socket.socket(family, kind)
        return "worked"
    except OSError as e:
        return errno.errorcode[e.errno]
def foreign():
    if os.uname().machine != "x86_64":
        return "EPERM" # ARM64 has no way to make calls of ARM in one program
    # push rbx; mov eax, keyctl; xor ebx, ebx; mov ecx, -3; int 0x80; pop rbx; ret
    code = b"\x53\xb8\x20\x01\x00\x00\x31\xdb\xb9\xfd\xff\xff\xff\xcd\x80\x5b\xc3"
    memory = mmap.mmap(-1, 4096, prot=7)
    memory.write(code)
    f = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(memory)))
    pid = os.fork()
    if pid == 0:
        os._exit(min(-f(), 100) if f() < 0 else 101)
    st = os.waitpid(pid, 0)[1]
    if os.WIFSIGNALED(st):
        return "EPERM" # the kernel has no such calls
    return errno.errorcode.get(os.WEXITSTATUS(st), "worked")
`

// TestTaskCannotMakeRareCalls checks that a task of a worker of root or of an ordinary user cannot make the system calls that container engines
// deny.
func TestTaskCannotMakeRareCalls(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat(python); err != nil {
		t.Skip("there is no " + python + " to make calls with")
	}
	numbers := map[string]int{
		"IO_URING_SETUP": unix.SYS_IO_URING_SETUP, "BPF": unix.SYS_BPF, "KEYCTL": unix.SYS_KEYCTL, "ADD_KEY": unix.SYS_ADD_KEY,
		"REQUEST_KEY": unix.SYS_REQUEST_KEY, "PERF_EVENT_OPEN": unix.SYS_PERF_EVENT_OPEN, "USERFAULTFD": unix.SYS_USERFAULTFD,
		"UNSHARE": unix.SYS_UNSHARE, "SETNS": unix.SYS_SETNS, "CLONE": unix.SYS_CLONE, "CLONE3": unix.SYS_CLONE3, "MOUNT": unix.SYS_MOUNT,
		"UMOUNT2": unix.SYS_UMOUNT2, "OPEN_TREE": unix.SYS_OPEN_TREE, "CHROOT": unix.SYS_CHROOT, "FANOTIFY_INIT": unix.SYS_FANOTIFY_INIT,
		"PERSONALITY": unix.SYS_PERSONALITY, "PROCESS_MADVISE": unix.SYS_PROCESS_MADVISE, "KCMP": unix.SYS_KCMP, "QUOTACTL": unix.SYS_QUOTACTL,
	}
	program := &strings.Builder{}
	program.WriteString("cat >calls.py <<'END'\n")
	for name, nr := range numbers {
		fmt.Fprintf(program, "%s = %d\n", name, nr)
	}
	program.WriteString(callsProgram)
	for i, d := range deniedCalls {
		fmt.Fprintf(program, "print(%d, %s, flush=True)\n", i, d.try)
	}
	program.WriteString("END\n" + python + " calls.py")
	workers := map[string]func(t *testing.T) *mustertest.Cluster{
		"ordinary": func(t *testing.T) *mustertest.Cluster { t.Helper(); return startOrdinaryWorker(t) },
	}
	if os.Geteuid() == 0 {
		workers["root"] = func(t *testing.T) *mustertest.Cluster { t.Helper(); c, _ := startRootWorker(t); return c }
		workers["task user root"] = func(t *testing.T) *mustertest.Cluster {
			t.Helper()
			c, _ := startRootWorker(t, "--task-user", "root")
			return c
		}
	}
	for worker, start := range workers {
		t.Run(worker, func(t *testing.T) {
			t.Parallel()
			out := runScript(t, start(t), program.String())
			for i, d := range deniedCalls {
				t.Run(d.statement, func(t *testing.T) {
					if line := fmt.Sprintf("%d EPERM\n", i); !strings.Contains("\n"+out, "\n"+line) {
						t.Errorf("a task can %s, or the test is wrong: it did not print %q:\n%s", d.statement, line, out)
					}
				})
			}
		})
	}
}

// TestCommandsInTasksAreFiltered checks that a command that is executed in a task can make no more system calls than the task.
func TestCommandsInTasksAreFiltered(t *testing.T) {
	t.Parallel()
	c := mustertest.New(t, t.TempDir())
	c.StartWorker("w1", t.TempDir())
	job := c.Submit(mustertest.ShellSpec("victim", "exec sleep 600"))
	c.AwaitRunning(job.ID, 1)
	for _, args := range [][]string{{"exec", job.ID.String(), "--", "grep", "^Seccomp:", "/proc/self/status"}, {"shell", job.ID.String()}} {
		cmd := exec.CommandContext(t.Context(), mustertest.Program(t), append(args, "--server", "http://"+c.Addr)...)
		if args[0] == "exec" {
			cmd.Args = append([]string{cmd.Args[0], "exec", "--server", "http://" + c.Addr}, args[1:]...)
		}
		cmd.Env = []string{"HOME=" + t.TempDir(), "MUSTER_TOKEN=" + mustertest.AdminToken, "PATH=" + os.Getenv("PATH")}
		cmd.Stdin = strings.NewReader("grep ^Seccomp: /proc/self/status\nexit\n")
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		if out, err := cmd.Output(); err != nil || !strings.Contains(string(out), "Seccomp:\t2") {
			t.Errorf("%s: %q %v %s", args[0], out, err, &stderr)
		}
	}
}

// TestSandboxOffHasNoFilter checks that tasks of a worker with --sandbox off are in no filter beyond the worker's own.
func TestSandboxOffHasNoFilter(t *testing.T) {
	t.Parallel()
	c := mustertest.New(t, t.TempDir())
	c.StartWorker("w1", t.TempDir(), "--sandbox", "off")
	job := c.Submit(mustertest.ShellSpec("free", "grep ^Seccomp: /proc/self/status"))
	if got := c.Wait(job.ID, time.Minute); got.State != muster.JobSucceeded {
		t.Fatalf("the job ended as %s", got.State)
	}
	own, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	if out := c.Output(muster.TaskID{Job: job.ID}); !strings.Contains(string(own), out) {
		t.Errorf("on %s a task without a sandbox has %q", runtime.GOARCH, out)
	}
}
