package limit

import (
	"syscall"

	"github.com/muster-dev/muster/internal/agent/run"
)

func spawn(_ *run.Confine, p *Program) (pid, pidfd int, err error) {
	pidfd = -1
	pid, err = forkExec(p, &syscall.SysProcAttr{PidFD: &pidfd})
	return pid, pidfd, err
}
