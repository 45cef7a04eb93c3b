//go:build !unix

package proctree

import (
	"errors"
	"os"
)

// ErrNoExec says that a file has no form that the system can execute.
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

// Signal ends the process: here there is no milder way.
func (c *Child) Signal(string) { c.Kill() }
