//go:build unix

package shim

import (
	"errors"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// errNoExec says that a file has no form that the system can execute.
const errNoExec = syscall.ENOEXEC

// wait blocks until the main process has exited, kills the rest of its group
// (on Linux while its number cannot have been given to another one yet), and
// reaps it.
func (c child) wait() ended {
	c.awaitExit()
	_ = syscall.Kill(-c.pid, syscall.SIGKILL) // ESRCH is the wanted state
	var (
		ws syscall.WaitStatus
		ru syscall.Rusage
	)
	for {
		_, err := syscall.Wait4(c.pid, &ws, 0, &ru)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil {
			return ended{code: -1}
		}
		break
	}
	x := ended{
		code:   ws.ExitStatus(),
		cpu:    time.Duration(ru.Utime.Nano() + ru.Stime.Nano()),
		maxRSS: maxRSS(&ru),
	}
	if ws.Signaled() {
		x.signal, x.killed = unix.SignalName(ws.Signal()), ws.Signal() == syscall.SIGKILL
		x.code = 128 + int(ws.Signal())
	}
	return x
}

// signal sends the named signal to the whole process group; SIGTERM if the name
// is none.
func (c child) signal(name string) {
	sig := unix.SignalNum(name)
	if sig == 0 {
		sig = syscall.SIGTERM
	}
	_ = syscall.Kill(-c.pid, sig) // ESRCH: it has just ended
}
