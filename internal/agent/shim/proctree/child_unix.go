//go:build unix

package proctree

import (
	"errors"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ErrNoExec is the error of a file that the system cannot execute.
const ErrNoExec = syscall.ENOEXEC

// Wait blocks until the main process has exited, kills the rest of its group (on Linux while its PID cannot be reused), and reaps it. It is called
// once.
func (c *Child) Wait() ExitStatus {
	ws, ru, err := c.reap()
	if err != nil {
		return ExitStatus{Code: -1}
	}
	x := ExitStatus{
		Code:   ws.ExitStatus(),
		CPU:    time.Duration(ru.Utime.Nano() + ru.Stime.Nano()),
		MaxRSS: maxRSS(ru),
	}
	if ws.Signaled() {
		x.Signal, x.Killed = unix.SignalName(ws.Signal()), ws.Signal() == syscall.SIGKILL
		x.Code = 128 + int(ws.Signal())
	}
	return x
}

// Signal sends the named signal to the whole process group; SIGTERM if the name is unknown.
func (c *Child) Signal(name string) {
	sig := unix.SignalNum(name)
	if sig == 0 {
		sig = syscall.SIGTERM
	}
	c.IfUnreaped(func() { _ = syscall.Kill(-c.PID, sig) }) // ESRCH: it has just ended
}

// wait reaps the process, and waits for its end if it still runs.
func (c *Child) wait() (ws syscall.WaitStatus, ru *syscall.Rusage, err error) {
	ru = &syscall.Rusage{}
	for {
		if _, err = syscall.Wait4(c.PID, &ws, 0, ru); !errors.Is(err, syscall.EINTR) {
			return ws, ru, err
		}
	}
}

func killGroup(pgid int) {
	if pgid > 1 {
		_ = syscall.Kill(-pgid, syscall.SIGKILL) // ESRCH: it has ended
	}
}
