package shim

import (
	"net"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/isolation/netns"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/agent/shim/egress"
)

// NSInitCommand is the first argument with which this program runs netns.Init.
const NSInitCommand = "helped"

// initEgress reads the hosts of the allowlist.
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

// serveEgress serves the task's proxy at a listener in its network, until its end.
func (a *attempt) serveEgress(l net.Listener) {
	a.egress.Start(l, func(f func()) { a.async("serving the task's egress proxy", f) })
}

// serveContainerEgress serves the proxy of a container, whose program waits for it: see egress.Entrypoint. pid is its main process, 0 if
// that is not on this machine.
func (a *attempt) serveContainerEgress(pid int) error {
	if pid == 0 {
		return run.Failf(muster.EngineFailed, "network: allowlist needs an engine on the worker's machine: the process of the container at %s is not there", a.spec.Container.Engine)
	}
	l, err := netns.ListenIn(pid, a.spec.Container.ID)
	if err != nil {
		return run.Failf(muster.StartFailed, "network: allowlist needs a worker that runs as root: cannot enter the network of the container: %w", err)
	}
	a.serveEgress(l)
	return nil
}
