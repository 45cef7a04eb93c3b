//go:build !unix

package isolation

import (
	"os"

	"github.com/muster-dev/muster/internal/agent/run"
)

// spawn starts p without isolation, which does not exist here.
func spawn(c *run.IsolationSpec, p *Program) (pid, pidfd int, err error) {
	if c.NoNet {
		return 0, -1, errNetwork()
	}
	proc, err := os.StartProcess(p.Path, p.Argv, &os.ProcAttr{
		Dir: p.Dir, Env: p.Env, Files: []*os.File{p.Stdin, p.Stdout, p.Stderr},
	})
	if err != nil {
		return 0, -1, err
	}
	return proc.Pid, -1, proc.Release()
}
