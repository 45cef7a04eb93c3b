package shim

import (
	"net"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/isolation/netns"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/agent/shim/egress"
)

// NSInitCommand is the first argument by which this program is to be netns.Helped.
const NSInitCommand = "helped"

// initEgress reads what the task may reach by the proxy of an allowlist.
func (a *attempt) initEgress() (err error) {
	var hosts []string
	if c := a.spec.Container; c != nil {
		hosts = c.AllowHosts
	} else if c := a.spec.Isolation; c != nil {
		hosts = c.AllowHosts
	}
	if a.egress, err = egress.NewServer(hosts, a.log.WriteLine); err != nil {
		return run.Failf(muster.TaskInvalid, "%w", err)
	}
	return nil
}

// serveEgress lets the task out by what listens in its network, until its end.
func (a *attempt) serveEgress(l net.Listener) {
	a.egress.Start(l, func(f func()) { a.async("it let the task out of its network", f) })
}

// serveContainerEgress lets a container out whose main process has this number, 0 if it is none of this machine's.
// Its program waits for that: see gate.Enter.
func (a *attempt) serveContainerEgress(pid int) error {
	if pid == 0 {
		return run.Failf(muster.EngineFailed, "the task has network: allowlist, and the process of its container, which is made by the engine at %s, is not found on the worker's machine", a.spec.Container.Engine)
	}
	l, err := netns.ListenIn(pid, a.spec.Container.ID)
	if err != nil {
		return run.Failf(muster.StartFailed, "the task has network: allowlist, and the network of its container cannot be entered, for which a worker has to be root: %w", err)
	}
	a.serveEgress(l)
	return nil
}
