//go:build !unix

package shim

import (
	"errors"
	"os"
)

// errNoExec says that a file has no form that the system can execute.
var errNoExec = errors.New("not a program")

// wait blocks until the main process has exited.
func (c child) wait() ended {
	p, err := os.FindProcess(c.pid)
	if err != nil {
		return ended{code: -1}
	}
	st, err := p.Wait()
	if err != nil {
		return ended{code: -1}
	}
	return ended{code: st.ExitCode(), cpu: st.UserTime() + st.SystemTime()}
}

// signal ends the process: here there is no milder way.
func (c child) signal(string) { killGroup(c.pid) }
