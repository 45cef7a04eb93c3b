package limit

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
)

// listenHere listens on run.ProxyPort of the loopback device of the calling thread's network.
func listenHere() (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, os.NewSyscallError("socket", err)
	}
	err = os.NewSyscallError("bind", unix.Bind(fd, &unix.SockaddrInet4{Port: run.ProxyPort, Addr: [4]byte{127, 0, 0, 1}}))
	if err == nil {
		err = os.NewSyscallError("listen", unix.Listen(fd, unix.SOMAXCONN))
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// listener takes over a socket that listens.
func listener(fd int) (net.Listener, error) {
	f := os.NewFile(uintptr(fd), "gate")
	defer f.Close()
	return net.FileListener(f)
}

// Listen listens on run.ProxyPort of the loopback device of another network: that
// of the process pid of this machine, in whose control groups' names the text part is. Only the privileged may.
func Listen(pid int, part string) (net.Listener, error) {
	proc := fmt.Sprintf("/proc/%d/", pid)
	network, err := unix.Open(proc+"ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("open", err)
	}
	defer func() { _ = unix.Close(network) }()
	// What is open now is the network of the process that has the number now, if it is the
	// right one still when it is looked at.
	if groups, err := os.ReadFile(proc + "cgroup"); err != nil || !strings.Contains(string(groups), part) {
		return nil, fmt.Errorf("process %d of this machine is another one", pid)
	}
	var own, other unix.Stat_t
	if err := errors.Join(unix.Stat("/proc/self/ns/net", &own), unix.Fstat(network, &other)); err != nil {
		return nil, err
	}
	if own.Ino == other.Ino && own.Dev == other.Dev {
		return nil, fmt.Errorf("process %d has no network of its own", pid)
	}
	fd := -1
	onThread(func() {
		if err = os.NewSyscallError("setns", unix.Setns(network, unix.CLONE_NEWNET)); err == nil {
			fd, err = listenHere()
		}
	})
	if err != nil {
		return nil, err
	}
	return listener(fd)
}

// helpWait is how long Helped may take to execute the program.
const helpWait = 30 * time.Second

// helped is the parent's side of Helped.
type helped struct{ mine, its *os.File }

// withHelp has Helped execute the program of s, and bring its loopback device up.
func (s *process) withHelp() error {
	if len(s.p.Helper) == 0 {
		return errors.New("there is no program to help")
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("socketpair", err)
	}
	s.help = &helped{mine: os.NewFile(uintptr(fds[0]), "help"), its: os.NewFile(uintptr(fds[1]), "help")}
	with := *s.p
	with.Path, with.Argv = s.p.Helper[0], slices.Concat(s.p.Helper, []string{s.p.Path}, s.p.Argv)
	with.fourth = s.help.its
	s.p, s.attr.AmbientCaps = &with, []uintptr{unix.CAP_NET_ADMIN}
	return nil
}

// hear waits until the program is executed, and takes over what listens for it.
func (h *helped) hear() (fd int, err error) {
	_ = h.its.Close()
	defer h.mine.Close()
	conn, err := net.FileConn(h.mine)
	if err != nil {
		return -1, err
	}
	defer conn.Close()
	c, ok := conn.(*net.UnixConn)
	if !ok {
		return -1, errors.ErrUnsupported
	}
	_ = conn.SetReadDeadline(time.Now().Add(helpWait)) // without one it takes longer
	var b [4]byte
	rights := make([]byte, unix.CmsgSpace(4))
	fd = -1
	for {
		n, got, _, _, err := c.ReadMsgUnix(b[:], rights)
		switch {
		case errors.Is(err, io.EOF) && fd >= 0: // closed by the execution
			return fd, nil
		case err != nil:
			return fd, err
		case got > 0 && fd < 0:
			if fd, err = passed(rights[:got]); err != nil {
				return -1, err
			}
		case n == len(b):
			return fd, syscall.Errno(binary.NativeEndian.Uint32(b[:]))
		}
	}
}

// passed takes the file that came with a message.
func passed(rights []byte) (int, error) {
	list, err := unix.ParseSocketControlMessage(rights)
	if err != nil {
		return -1, err
	}
	fds, err := unix.ParseUnixRights(&list[0])
	if err != nil {
		return -1, err
	}
	unix.CloseOnExec(fds[0])
	return fds[0], nil
}

// gate makes what listens in the program's network known to the caller, once the program was forked;
// without one that runs there is none.
func (s *process) gate() {
	fd, err := s.gateFD, error(nil)
	if s.help != nil {
		if s.err != nil {
			_, _ = s.help.mine.Close(), s.help.its.Close()
			return
		}
		if fd, err = s.help.hear(); err != nil {
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
	l, err := listener(fd)
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

// Helped is the program by which Spawn lets a task into a network that comes with its
// process: in there it listens, passes what listens on, and executes the task's own program.
// args are that program's path and its arguments, from the zeroth on. It returns
// only if it fails, which Spawn knows then.
func Helped(args []string) error {
	const parent = 3
	unix.CloseOnExec(parent)
	if len(args) < 2 {
		return muster.Errorf(muster.Invalid, "this command is for the worker itself, which runs it when it needs it")
	}
	runtime.LockOSThread() // capabilities are a thread's
	err := loopback()
	fd := -1
	if err == nil {
		fd, err = listenHere()
	}
	if err != nil {
		return tell(parent, err)
	}
	if err := unix.Sendmsg(parent, []byte{'+'}, unix.UnixRights(fd), nil, 0); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return tell(parent, err)
	}
	return tell(parent, syscall.Exec(args[0], args[1:], os.Environ()))
}

// tell passes an error of the system to the parent.
func tell(parent int, err error) error {
	no := syscall.EIO
	if e, ok := errors.AsType[syscall.Errno](err); ok {
		no = e
	}
	_, werr := unix.Write(parent, binary.NativeEndian.AppendUint32(nil, uint32(no)))
	return errors.Join(err, werr)
}
