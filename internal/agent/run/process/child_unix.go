//go:build unix

package process

import (
	"errors"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// errNoExec says that a file has no form that the system can execute.
const errNoExec = syscall.ENOEXEC

// child is a started main process.
type child struct {
	pid    int
	handle int // of the system for its end, -1 for none
}

// spawn starts a program as the leader of a session of its own: it has no terminal,
// and cannot leave its process group for the worker's, where no signal for it comes.
func spawn(path string, argv, env []string, dir string, in, out, err *os.File) (child, error) {
	attr := &syscall.ProcAttr{
		Dir:   dir,
		Env:   env,
		Files: []uintptr{in.Fd(), out.Fd(), err.Fd()},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	}
	handle := withHandle(attr.Sys)
	for try := 0; ; try++ {
		pid, e := syscall.ForkExec(path, argv, attr)
		// A file that was just written may still be open for writing in a process
		// that is being forked at this moment.
		if errors.Is(e, syscall.ETXTBSY) && try < 100 {
			time.Sleep(10 * time.Millisecond)
			continue
		}
		if e != nil {
			return child{}, e
		}
		return child{pid, *handle}, nil
	}
}

// wait blocks until the main process has exited, kills the rest of its group
// (on Linux while its number cannot have been given to another one yet), and
// reaps it.
func (c child) wait() exit {
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
			return exit{code: -1}
		}
		break
	}
	x := exit{
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
