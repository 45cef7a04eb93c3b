package isolation

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/muster-dev/muster/internal/agent/isolation/netns"
)

// useNSInit has netns.Helped execute the program of s, and bring its loopback device up.
func (s *spawner) useNSInit() error {
	if len(s.p.NSInit) == 0 {
		return errors.New("there is no program to help")
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

// passListener makes what listens in the program's network known to the caller, once the program was forked;
// without one that runs there is none.
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
				s.err = err // of the program itself
			} else {
				s.err = setupError("the task's network cannot be set up by "+s.p.NSInit[0], err)
			}
		}
	}
	if fd < 0 {
		return
	}
	l, err := netns.FileListener(fd)
	switch {
	case s.err != nil || s.p.OnListener == nil:
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

// killAndWait kills what was forked, and waits for its end.
func (s *spawner) killAndWait() {
	_ = unix.Kill(s.pid, unix.SIGKILL)
	for {
		if _, err := unix.Wait4(s.pid, nil, 0, nil); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	_ = unix.Close(*s.attr.PidFD)
}
