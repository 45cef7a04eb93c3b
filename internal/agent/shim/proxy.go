package shim

import (
	"context"
	"net"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/limit"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/agent/shim/gate"
)

// HelpedCommand is the first argument by which this program is to be limit.Helped.
const HelpedCommand = "helped"

// proxy is the way out of the network of a task with an allowlist. The zero proxy is of
// a task without one.
type proxy struct {
	rules *gate.Rules
	end   context.CancelFunc
	ended chan struct{}
}

// openProxy reads what a task may reach.
func openProxy(hosts []string) (p proxy, err error) {
	if len(hosts) == 0 {
		return p, nil
	}
	if p.rules, err = gate.Parse(hosts); err != nil {
		return p, run.Failf(muster.TaskInvalid, "%w", err)
	}
	return p, nil
}

// hosts are those that the task of an attempt may reach by its proxy.
func hosts(s *run.Start) []string {
	switch {
	case s.Container != nil:
		return s.Container.Hosts
	case s.Confine != nil:
		return s.Confine.Hosts
	default:
		return nil
	}
}

// letOut lets the task out by what listens in its network, until close.
func (a *attempt) letOut(l net.Listener) {
	ctx, cancel := context.WithCancel(context.Background())
	a.proxy.end, a.proxy.ended = cancel, make(chan struct{})
	a.server.wg.Go(func() {
		defer close(a.proxy.ended)
		gate.New(a.proxy.rules, a.log.Say).Run(ctx, l)
	})
}

// letContainerOut lets a container out whose main process has this number, 0 if it is none of this machine's.
// Its program waits for that: see gate.Enter.
func (a *attempt) letContainerOut(pid int) error {
	if pid == 0 {
		return run.Failf(muster.StartFailed, "the task has network: allowlist, and the process of its container, which is made by the engine at %s, is not found on the worker's machine", a.s.Container.Engine)
	}
	l, err := limit.Listen(pid, a.s.Container.ID)
	if err != nil {
		return run.Failf(muster.StartFailed, "the task has network: allowlist, and the network of its container cannot be entered, for which a worker has to be root: %w", err)
	}
	a.letOut(l)
	return nil
}

// close ends the task's connections, and returns when nothing is left of them.
func (p *proxy) close() {
	if p.end != nil {
		p.end()
		<-p.ended
	}
}
