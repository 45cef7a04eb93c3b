package isolation

import (
	"errors"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/isolation/netns"
	"github.com/muster-dev/muster/internal/agent/run"
)

// undumpable is whether DisableDumpable was called. The lock is held while that is suspended.
var undumpable struct {
	sync.Mutex
	on bool
}

// forkInUserNamespace starts the process in new namespaces. denied is why it cannot be done without a user namespace.
func (s *spawner) forkInUserNamespace(denied error) {
	undumpable.Lock()
	defer undumpable.Unlock()
	if undumpable.on {
		// The files in /proc of an undumpable process belong to root, including its uid_map.
		_ = unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0)
		defer func() { _ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) }()
	}
	s.fork()
	for _, errno := range []error{syscall.EPERM, syscall.ENOSPC, syscall.EUSERS, syscall.ENOSYS} {
		if errors.Is(s.err, errno) {
			s.err = run.Failf(muster.StartFailed, "this worker cannot give the task a network of its own (network: none or allowlist): "+
				"it has no privileges (%v), and cannot create a user namespace (%w)", denied, s.err)
			return
		}
	}
}

// DisableDumpable prevents other processes of this user from reading this one's environment, memory and files. Privileged processes
// still can.
func DisableDumpable() error {
	undumpable.Lock()
	defer undumpable.Unlock()
	undumpable.on = true
	return os.NewSyscallError("prctl", unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0))
}

// useNSInit changes s so that netns.Init executes its program and brings up its loopback device.
func (s *spawner) useNSInit() error {
	if len(s.p.NSInit) == 0 {
		return errors.New("no init program is configured")
	}
	helper, err := netns.NewHelper()
	if err != nil {
		return err
	}
	s.nsinit = helper
	wrapped := *s.p
	wrapped.Path, wrapped.Argv = s.p.NSInit[0], netns.InitArgv(s.p.NSInit, s.p.Path, s.p.Argv)
	wrapped.extraFile = helper.ChildFile()
	s.p, s.attr.AmbientCaps = &wrapped, []uintptr{unix.CAP_NET_ADMIN}
	return nil
}

// passListener passes the socket in the program's network to OnListener after the fork.
func (s *spawner) passListener() {
	fd := s.listenerFD
	if s.nsinit != nil {
		if s.err != nil {
			s.nsinit.Close()
			return
		}
		var err error
		if fd, err = s.nsinit.Wait(); err != nil {
			s.killAndWait()
			if _, ok := errors.AsType[syscall.Errno](err); ok {
				s.err = err // the program cannot be executed
			} else {
				s.err = setupError("cannot set up the task's network with "+s.p.NSInit[0], err)
			}
		}
	}
	if fd < 0 {
		return
	}
	l, err := netns.FileListener(fd)
	switch {
	case s.err != nil || s.p.OnListener == nil || len(s.c.AllowHosts) == 0:
		if err == nil {
			_ = l.Close()
		}
	case err != nil:
		s.killAndWait()
		s.err = setupError("the proxy of the task's network cannot listen", err)
	default:
		s.p.OnListener(l)
	}
}

// killAndWait kills the forked process, and waits until it has exited.
func (s *spawner) killAndWait() {
	_ = unix.Kill(s.pid, unix.SIGKILL)
	_, _ = waitPID(s.pid)
	_ = unix.Close(*s.attr.PidFD)
}
