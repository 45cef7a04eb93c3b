package netns

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/isolation/seccomp"
)

// initTimeout is how long Init may take to execute the program.
const initTimeout = 30 * time.Second

// parentFD is the connection to the parent in a process that calls Init.
const parentFD = 3

// Helper is the parent's side of Init.
type Helper struct{ parent, child *os.File }

// NewHelper creates the connection between a process that calls Init and its parent.
func NewHelper() (*Helper, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socketpair", err)
	}
	return &Helper{parent: os.NewFile(uintptr(fds[0]), "help"), child: os.NewFile(uintptr(fds[1]), "help")}, nil
}

// ChildFile must be open as file 3 in the process that calls Init.
func (h *Helper) ChildFile() *os.File { return h.child }

// InitArgv is the command line with which helper, a program that calls Init, executes a program: with the default filter of package
// seccomp, or without.
func InitArgv(helper []string, filter bool, path string, argv []string) []string {
	return slices.Concat(helper, []string{strconv.FormatBool(filter), path}, argv)
}

// Close releases the connection if the process was not started.
func (h *Helper) Close() { _, _ = h.parent.Close(), h.child.Close() }

// Wait waits until the program is executed, and returns the listening socket, which the caller closes. The error is a syscall.Errno
// if the program could not be executed.
func (h *Helper) Wait() (fd int, err error) {
	_ = h.child.Close()
	defer h.parent.Close()
	conn, err := net.FileConn(h.parent)
	if err != nil {
		return -1, err
	}
	defer conn.Close()
	c, ok := conn.(*net.UnixConn)
	if !ok {
		return -1, errors.ErrUnsupported
	}
	_ = conn.SetReadDeadline(time.Now().Add(initTimeout)) // if it fails, the wait is longer
	var b [4]byte
	rights := make([]byte, unix.CmsgSpace(4))
	fd = -1
	for {
		n, got, _, _, err := c.ReadMsgUnix(b[:], rights)
		switch {
		case errors.Is(err, io.EOF) && fd >= 0: // the execution closed it
			return fd, nil
		case err != nil:
			return fd, err
		case got > 0 && fd < 0:
			if fd, err = receivedFD(rights[:got]); err != nil {
				return -1, err
			}
		case n == len(b):
			return fd, syscall.Errno(binary.NativeEndian.Uint32(b[:]))
		}
	}
}

func receivedFD(rights []byte) (int, error) {
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

// Init runs as the first program in a user namespace with its own network: it listens there, passes the socket to the parent, and
// executes the task's program. args are those of InitArgv after helper. Init returns only if it fails,
// and reports that to the parent.
func Init(args []string) error {
	unix.CloseOnExec(parentFD)
	if len(args) < 3 {
		return muster.Errorf(muster.Invalid, "this command is internal: the worker runs it when needed")
	}
	runtime.LockOSThread() // capabilities belong to a thread
	err := loopbackUp()
	fd := -1
	if err == nil {
		fd, err = ListenFD()
	}
	if err != nil {
		return sendError(err)
	}
	if err := unix.Sendmsg(parentFD, []byte{'+'}, unix.UnixRights(fd), nil, 0); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return sendError(err)
	}
	if args[0] == strconv.FormatBool(true) {
		if err := seccomp.Enter(seccomp.Default); err != nil {
			return sendError(err)
		}
	}
	return sendError(syscall.Exec(args[1], args[2:], os.Environ()))
}

// sendError sends an error of the system to the parent.
func sendError(err error) error {
	errno := syscall.EIO
	if e, ok := errors.AsType[syscall.Errno](err); ok {
		errno = e
	}
	_, werr := unix.Write(parentFD, binary.NativeEndian.AppendUint32(nil, uint32(errno)))
	return errors.Join(err, werr)
}
