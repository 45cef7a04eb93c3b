package proctree

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/muster-dev/muster"
)

// maxRSS returns the peak of the largest process. A child starts with the peak of the process that forked it, so lower values are unknown: 0.
func maxRSS(ru *syscall.Rusage) muster.Size {
	var self syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &self); err != nil || ru.Maxrss <= self.Maxrss {
		return 0
	}
	return muster.Size(ru.Maxrss) << 10 // in KiB
}

// reap waits for the end of the process, kills the rest of its group, and reaps it. In between it is a zombie, so its PID cannot be reused.
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
		// On another error the caller's wait returns it.
		if err := unix.Waitid(unix.P_PID, c.PID, nil, unix.WEXITED|unix.WNOWAIT, nil); !errors.Is(err, syscall.EINTR) {
			return
		}
	}
}

// waitPidfd waits for a pidfd with the runtime's poller, and closes it. It returns false if this kernel does not support that.
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
