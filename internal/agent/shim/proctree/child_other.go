//go:build !unix

package proctree

import (
	"errors"
	"os"
)

// ErrNoExec is the error of a file that the system cannot execute.
var ErrNoExec = errors.New("not a program")

// Wait blocks until the main process has exited.
func (c *Child) Wait() ExitStatus {
	p, err := os.FindProcess(c.PID)
	if err != nil {
		return ExitStatus{Code: -1}
	}
	st, err := p.Wait()
	c.mu.Lock()
	c.reaped = true
	c.mu.Unlock()
	if err != nil {
		return ExitStatus{Code: -1}
	}
	return ExitStatus{Code: st.ExitCode(), CPU: st.UserTime() + st.SystemTime()}
}

// Signal kills the process: this system has no signals.
func (c *Child) Signal(string) { c.Kill() }

// killGroup kills the process: this system has no groups.
func killGroup(pid int) {
	if p, err := os.FindProcess(pid); err == nil {
		_ = p.Kill() // an error means that it has exited
	}
}

// freezeGroup does nothing: this system has no such signal.
func freezeGroup(int, bool) {}
