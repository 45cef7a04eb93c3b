package netns

import (
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/agent/shim/fault"
)

// OnThread calls f on a new thread, which ends afterwards: the namespaces that f enters apply only to that thread and the
// processes that it starts. The Go runtime starts no threads from a locked one. OnThread panics if f does.
func OnThread(f func()) {
	done := make(chan struct{})
	var failed error
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if unix.Gettid() == os.Getpid() {
			// The main thread cannot end, and represents the whole process in /proc.
			failed = fault.Run(func() { OnThread(f) })
			runtime.UnlockOSThread()
			return
		}
		failed = fault.Run(f)
	}()
	<-done
	if failed != nil {
		panic(failed)
	}
}

// Unshare moves the calling thread into a network with nothing but a loopback device, which it brings up. It needs privileges.
func Unshare() error {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return os.NewSyscallError("unshare", err)
	}
	return loopbackUp()
}

// loopbackUp brings the loopback device of the calling thread's network up.
func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	defer func() { _ = unix.Close(fd) }()
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return os.NewSyscallError("ioctl SIOCSIFFLAGS", unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo))
}

// ListenFD listens on run.ProxyPort of the loopback device of the calling thread's network.
func ListenFD() (int, error) {
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

// FileListener returns a listener for a listening socket, and closes fd.
func FileListener(fd int) (net.Listener, error) {
	f := os.NewFile(uintptr(fd), "proxy")
	defer f.Close()
	return net.FileListener(f)
}

// ListenIn listens on run.ProxyPort of the loopback device of another network: that of the process pid of this machine, whose
// control groups contain the text cgroup in their names. It needs privileges.
func ListenIn(pid int, cgroup string) (net.Listener, error) {
	proc := fmt.Sprintf("/proc/%d/", pid)
	network, err := unix.Open(proc+"ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("open", err)
	}
	defer func() { _ = unix.Close(network) }()
	// The number may have been reused before it was opened: check that it is the right process now.
	if groups, err := os.ReadFile(proc + "cgroup"); err != nil || !strings.Contains(string(groups), cgroup) {
		return nil, fmt.Errorf("process %d is not in the control group %s", pid, cgroup)
	}
	var own, other unix.Stat_t
	if err := errors.Join(unix.Stat("/proc/self/ns/net", &own), unix.Fstat(network, &other)); err != nil {
		return nil, err
	}
	if own.Ino == other.Ino && own.Dev == other.Dev {
		return nil, fmt.Errorf("process %d has no network of its own", pid)
	}
	fd := -1
	OnThread(func() {
		if err = os.NewSyscallError("setns", unix.Setns(network, unix.CLONE_NEWNET)); err == nil {
			fd, err = ListenFD()
		}
	})
	if err != nil {
		return nil, err
	}
	return FileListener(fd)
}
