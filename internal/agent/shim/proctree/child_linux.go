package proctree

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/muster-dev/muster"
)

// maxRSS is the peak of the largest process. A child begins with the peak of the
// process that forked it, so anything not above that is unknown: 0.
func maxRSS(ru *syscall.Rusage) muster.Size {
	var self syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &self); err != nil || ru.Maxrss <= self.Maxrss {
		return 0
	}
	return muster.Size(ru.Maxrss) << 10 // told in KiB
}

// reap waits for the end of the process, kills the rest of its group, and reaps it. Between, it is
// a zombie, and its number is its own.
func (c *Child) reap() (ws syscall.WaitStatus, ru *syscall.Rusage, err error) {
	c.waitExit()
	c.mu.Lock()
	defer c.mu.Unlock()
	killGroup(c.PID)
	c.reaped = true
	return c.wait()
}

// waitExit blocks until the process is a zombie.
func (c *Child) waitExit() {
	if c.Handle >= 0 && waitPidfd(c.Handle) {
		return
	}
	for {
		// At another error the caller's wait says what is the matter.
		if err := unix.Waitid(unix.P_PID, c.PID, nil, unix.WEXITED|unix.WNOWAIT, nil); !errors.Is(err, syscall.EINTR) {
			return
		}
	}
}

// waitPidfd waits for a pidfd, which it closes, as for other files that become
// readable. It reports false if this kernel cannot do that.
func waitPidfd(fd int) bool {
	if err := syscall.SetNonblock(fd, true); err != nil {
		_ = syscall.Close(fd)
		return false
	}
	f := os.NewFile(uintptr(fd), "pidfd")
	defer f.Close()
	conn, err := f.SyscallConn()
	if err != nil {
		return false
	}
	exited := false
	err = conn.Read(func(fd uintptr) bool {
		err := unix.Waitid(unix.P_PIDFD, int(fd), nil, unix.WEXITED|unix.WNOWAIT, nil)
		exited = err == nil
		return !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR)
	})
	return err == nil && exited
}
