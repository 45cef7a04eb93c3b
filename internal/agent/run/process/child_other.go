//go:build !unix

package process

import (
	"errors"
	"os"
)

// errNoExec says that a file has no form that the system can execute.
var errNoExec = errors.New("not a program")

// child is a started main process.
type child struct {
	pid  int
	proc *os.Process
}

func spawn(path string, argv, env []string, dir string, in, out, err *os.File) (child, error) {
	p, e := os.StartProcess(path, argv, &os.ProcAttr{Dir: dir, Env: env, Files: []*os.File{in, out, err}})
	if e != nil {
		return child{}, e
	}
	return child{p.Pid, p}, nil
}

// wait blocks until the main process has exited.
func (c child) wait() exit {
	st, err := c.proc.Wait()
	if err != nil {
		return exit{code: -1}
	}
	return exit{code: st.ExitCode(), cpu: st.UserTime() + st.SystemTime()}
}

// signal ends the process: here there is no milder way.
func (c child) signal(string) { _ = c.proc.Kill() } // gone is the wanted state
