package isolation

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/muster-dev/muster/internal/agent/run"
)

// tryReach checks that a user can enter a folder, by doing so.
func tryReach(u *run.User, v *run.View, dir string) error {
	return trySpawn(&run.IsolationSpec{User: u, View: v}, dir)
}

// canSwitchUsers returns why this process cannot run tasks as other users, nil if it can.
func canSwitchUsers() error {
	for capability, name := range map[int]string{unix.CAP_SETUID: "CAP_SETUID", unix.CAP_SETGID: "CAP_SETGID", unix.CAP_CHOWN: "CAP_CHOWN", unix.CAP_FOWNER: "CAP_FOWNER", unix.CAP_DAC_OVERRIDE: "CAP_DAC_OVERRIDE"} {
		if !capable(capability) {
			return fmt.Errorf("the worker lacks the capability %s", name)
		}
	}
	return nil
}

// idsMapped reports whether users and groups with these numbers exist in this process's user namespace.
func idsMapped(first, count uint32) bool {
	for _, name := range []string{"/proc/self/uid_map", "/proc/self/gid_map"} {
		b, err := os.ReadFile(name)
		if err != nil {
			return false
		}
		if !slices.ContainsFunc(strings.Split(string(b), "\n"), func(line string) bool {
			var inside, outside, length uint64
			_, err := fmt.Sscan(line, &inside, &outside, &length)
			return err == nil && inside <= uint64(first) && uint64(first)+uint64(count) <= inside+length
		}) {
			return false
		}
	}
	return true
}

// tryNetwork returns why tasks cannot have a network of their own, nil if they can.
func tryNetwork() error { return trySpawn(&run.IsolationSpec{NoNet: true}, "/") }

// trySeccomp returns why tasks cannot run without the system calls that container engines deny, nil if they can.
var trySeccomp = sync.OnceValue(func() error {
	err := trySpawn(&run.IsolationSpec{Seccomp: true}, "/")
	if e, ok := errors.AsType[*os.SyscallError](err); ok {
		return fmt.Errorf("this kernel has no seccomp filters, or the worker may not use them: %w", e)
	}
	return err
})

// trySpawn starts a program that does nothing.
func trySpawn(c *run.IsolationSpec, dir string) error {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer func() { _ = null.Close() }()
	pid, fd, err := Spawn(c, Program{Path: "/bin/sh", Argv: []string{"sh", "-c", ":"}, Dir: dir, Stdin: null, Stdout: null, Stderr: null})
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	st, err := waitPID(pid)
	if err == nil && st.ExitStatus() != 0 {
		err = fmt.Errorf("sh -c : exited with status %d", st.ExitStatus())
	}
	return err
}

func waitPID(pid int) (st unix.WaitStatus, err error) {
	for {
		if _, err = unix.Wait4(pid, &st, 0, nil); !errors.Is(err, unix.EINTR) {
			return st, err
		}
	}
}
