//go:build unix && !linux

package proctree

import (
	"syscall"

	"github.com/muster-dev/muster"
)

func maxRSS(ru *syscall.Rusage) muster.Size { return muster.Size(ru.Maxrss) } // in bytes on darwin

// reap waits for the end of the process, reaps it, and kills the rest of its group.
func (c *Child) reap() (ws syscall.WaitStatus, ru *syscall.Rusage, err error) {
	ws, ru, err = c.wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reaped = true
	killGroup(c.PID)
	return ws, ru, err
}

func freezeGroup(pgid int, on bool) {
	sig := syscall.SIGCONT
	if on {
		sig = syscall.SIGSTOP
	}
	if pgid > 1 {
		_ = syscall.Kill(-pgid, sig) // ESRCH: it has just ended
	}
}
