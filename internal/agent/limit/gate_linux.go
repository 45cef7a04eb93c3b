package limit

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/muster-dev/muster/internal/agent/limit/netns"
)

// withHelp has netns.Helped execute the program of s, and bring its loopback device up.
func (s *process) withHelp() error {
	if len(s.p.Helper) == 0 {
		return errors.New("there is no program to help")
	}
	help, err := netns.NewHelp()
	if err != nil {
		return err
	}
	s.help = help
	with := *s.p
	with.Path, with.Argv = s.p.Helper[0], netns.Argv(s.p.Helper, s.p.Path, s.p.Argv)
	with.fourth = help.Fourth()
	s.p, s.attr.AmbientCaps = &with, []uintptr{unix.CAP_NET_ADMIN}
	return nil
}

// gate makes what listens in the program's network known to the caller, once the program was forked;
// without one that runs there is none.
func (s *process) gate() {
	fd := s.gateFD
	if s.help != nil {
		if s.err != nil {
			s.help.Close()
			return
		}
		var err error
		if fd, err = s.help.Hear(); err != nil {
			s.end()
			if _, ok := errors.AsType[syscall.Errno](err); ok {
				s.err = err // of the program itself
			} else {
				s.err = cannot("the task's network cannot be set up by "+s.p.Helper[0], err)
			}
		}
	}
	if fd < 0 {
		return
	}
	l, err := netns.Listener(fd)
	switch {
	case s.err != nil || s.p.Gate == nil:
		if err == nil {
			_ = l.Close()
		}
	case err != nil:
		s.end()
		s.err = cannot("the proxy of the task's network cannot listen", err)
	default:
		s.p.Gate(l)
	}
}

// end kills what was forked, and waits for its end.
func (s *process) end() {
	_ = unix.Kill(s.pid, unix.SIGKILL)
	for {
		if _, err := unix.Wait4(s.pid, nil, 0, nil); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	_ = unix.Close(*s.attr.PidFD)
}
