//go:build unix && !linux

package isolation

import (
	"syscall"

	"github.com/muster-dev/muster/internal/agent/run"
)

// spawn starts p as its user; nothing else isolates it here.
func spawn(c *run.IsolationSpec, p *Program) (pid, pidfd int, err error) {
	if c.NoNet {
		return 0, -1, errNetwork()
	}
	attr := &syscall.SysProcAttr{}
	if u := c.User; u != nil {
		attr.Credential = &syscall.Credential{Uid: u.UID, Gid: u.GID, Groups: u.Groups}
	}
	pid, err = forkExec(p, attr)
	return pid, -1, err
}
