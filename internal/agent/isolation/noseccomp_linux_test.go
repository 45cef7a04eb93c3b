package isolation

import (
	"bytes"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/muster-dev/muster/internal/agent/isolation/netns"
)

// withoutSeccomp is set for a process that cannot call seccomp.
const withoutSeccomp = "LIMIT_TEST_WITHOUT_SECCOMP"

// TestWorkersWithoutSeccomp checks that a worker whose kernel or container has no seccomp runs tasks all the same, and says so, and that a strict
// one does not start.
func TestWorkersWithoutSeccomp(t *testing.T) {
	if os.Getenv(withoutSeccomp) == "" {
		rerunWithoutSeccomp(t)
		return
	}
	const reason = "this kernel has no seccomp filters, or the worker may not use them: seccomp: invalid argument"
	var log bytes.Buffer
	var seen Description
	w := newEnv(t, func(c *Config) {
		c.Log = slog.New(slog.NewTextHandler(&log, nil))
		seen = Describe(*c)
	})
	if seen.Syscalls != (Enforcement{ByNothing, reason}) {
		t.Errorf("it describes itself as %+v", seen.Syscalls)
	}
	if !strings.Contains(log.String(), "tasks may use all system calls: "+reason) {
		t.Errorf("it logs %s", &log)
	}
	task := w.task(nil)
	if task.spec.Seccomp || task.spec.View != nil && task.spec.View.NoUserNamespaces {
		t.Errorf("the task is to be filtered: %+v", task.spec)
	}
	task.expect("echo works", "works", 0)
	_, err := New(Config{Data: w.data, Sandbox: Strict, Log: slog.New(slog.DiscardHandler)})
	if seen.Landlock >= 6 && (err == nil || !strings.Contains(err.Error(), "--sandbox strict needs a filter of system calls") || !strings.Contains(err.Error(), reason)) {
		t.Errorf("a strict worker: %v", err)
	}
}

// rerunWithoutSeccomp runs the test in a process to which the kernel refuses filters, as one that was built without them.
func rerunWithoutSeccomp(t *testing.T) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.v", "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), withoutSeccomp+"=1")
	program := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_SECCOMP, Jf: 1},
		{Code: unix.BPF_RET, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EINVAL)},
		{Code: unix.BPF_RET, K: unix.SECCOMP_RET_ALLOW},
	}
	prog := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	var out []byte
	var err error
	netns.OnThread(func() { // which ends with its filter
		if err = unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return
		}
		if _, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&prog))); errno != 0 {
			err = errno
			return
		}
		out, err = cmd.CombinedOutput()
	})
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("without seccomp: %v\n%s", err, out)
	}
}
