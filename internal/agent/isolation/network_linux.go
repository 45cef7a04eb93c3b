package isolation

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
)

// withLoopback returns p as a program that brings the loopback device of its new
// network up first, and the capability that it needs for that, if the machine has
// the tool; else p itself.
func withLoopback(p *Program) (*Program, []uintptr) {
	ip := ""
	for _, name := range []string{"ip", "/sbin/ip", "/usr/sbin/ip"} { // not on every user's PATH
		if path, err := exec.LookPath(name); err == nil {
			ip = path
			break
		}
	}
	if ip == "" {
		return p, nil
	}
	wrapped := *p
	wrapped.Path = "/bin/sh"
	wrapped.Argv = slices.Concat([]string{"sh", "-c", ip + ` link set dev lo up; exec "$@"`, "sh", p.Path}, p.Argv[min(1, len(p.Argv)):])
	return &wrapped, []uintptr{unix.CAP_NET_ADMIN}
}

// undumpable is whether Hide was called, and keeps it from changing while it is undone
// for a moment.
var undumpable struct {
	sync.Mutex
	on bool
}

// forkInUserNamespace starts the process in namespaces that come with it. denied is
// why there is no simpler way.
func (s *spawner) forkInUserNamespace(denied error) {
	undumpable.Lock()
	defer undumpable.Unlock()
	if undumpable.on {
		// The files of hidden processes in /proc are the superuser's, its map of users as well.
		_ = unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0)
		defer func() { _ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) }()
	}
	s.fork()
	for _, errno := range []error{syscall.EPERM, syscall.ENOSPC, syscall.EUSERS, syscall.ENOSYS} {
		if errors.Is(s.err, errno) {
			s.err = run.Failf(muster.StartFailed, "the task asks for a network of its own (network: none or allowlist), which this worker cannot give: "+
				"it is not privileged (%v), and makes no user namespace (%w)", denied, s.err)
			return
		}
	}
}

// DisableDumpable keeps other processes of this user from looking into this one: its
// environment, memory and files. The privileged can all the same.
func DisableDumpable() error {
	undumpable.Lock()
	defer undumpable.Unlock()
	undumpable.on = true
	return os.NewSyscallError("prctl", unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0))
}
