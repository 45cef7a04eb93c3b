package shim

import (
	"net"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/limit/netns"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/agent/shim/gate"
)

// HelpedCommand is the first argument by which this program is to be netns.Helped.
const HelpedCommand = "helped"

// planWay reads what the task may reach by the proxy of an allowlist.
func (a *attempt) planWay() (err error) {
	var hosts []string
	if c := a.s.Container; c != nil {
		hosts = c.Hosts
	} else if c := a.s.Confine; c != nil {
		hosts = c.Hosts
	}
	if a.way, err = gate.Plan(hosts, a.log.Say); err != nil {
		return run.Failf(muster.TaskInvalid, "%w", err)
	}
	return nil
}

// letOut lets the task out by what listens in its network, until its end.
func (a *attempt) letOut(l net.Listener) {
	a.way.Open(l, func(f func()) { a.async("it let the task out of its network", f) })
}

// letContainerOut lets a container out whose main process has this number, 0 if it is none of this machine's.
// Its program waits for that: see gate.Enter.
func (a *attempt) letContainerOut(pid int) error {
	if pid == 0 {
		return run.Failf(muster.EngineFailed, "the task has network: allowlist, and the process of its container, which is made by the engine at %s, is not found on the worker's machine", a.s.Container.Engine)
	}
	l, err := netns.Listen(pid, a.s.Container.ID)
	if err != nil {
		return run.Failf(muster.StartFailed, "the task has network: allowlist, and the network of its container cannot be entered, for which a worker has to be root: %w", err)
	}
	a.letOut(l)
	return nil
}
