package containerrun

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"strings"
	"syscall"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/docker"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/agent/shim/proctree"
)

// outage is what is known about an unreachable engine.
type outage struct {
	waitResult
	engineDown bool // it could not be reached; else only the connection broke
	crashed    bool // nothing listens on its socket, which a stopped engine removes
	crashKnown bool // crashed is known: later the socket is the next engine's
}

// reconnect finds the container again after an outage of its engine. It returns the source of its further output, or how it ended.
func (c *Container) reconnect(res waitResult) (*outputSource, *proctree.ExitStatus) {
	o := &outage{waitResult: res}
	deadline := time.Now().Add(c.timeouts.Outage)
	defer func() {
		if o.engineDown {
			c.handler.OnWaiting("")
		}
	}()
	for delay := c.timeouts.RetryDelay; ; delay = c.timeouts.nextDelay(delay) {
		src, x, err := c.inspect(o)
		switch {
		case err == nil:
			if o.engineDown && src != nil {
				c.handler.LogLine("the container engine is available again, the task continues")
			}
			return src, x
		case c.ctx.Err() != nil:
			return nil, engineFailure(context.Cause(c.ctx).Error())
		case errors.Is(err, docker.ErrNotFound) && c.stopRequested():
			x := exitStatusOf(exitSIGKILL)
			return nil, &x
		case errors.Is(err, docker.ErrNotFound):
			return nil, engineFailure(msgRemoved)
		case time.Now().After(deadline):
			return nil, engineFailure(fmt.Sprintf("the container engine at %s was unreachable for %s", c.spec.Engine, c.timeouts.Outage))
		case !o.engineDown:
			o.engineDown = true
			c.log.Warn("container engine unreachable", slog.Any("error", err))
			c.handler.LogLine("the container engine does not respond: waiting for it; the task may continue meanwhile")
			c.handler.OnWaiting("waiting for the container engine")
		}
		if !o.crashKnown {
			o.crashed, o.crashKnown = c.socketAbandoned()
		}
		select {
		case <-time.After(delay):
		case <-c.ctx.Done():
		}
	}
}

// socketAbandoned reports whether an engine's socket exists and nothing listens: a stopped engine removes it. Neither is known while something
// listens.
func (c *Container) socketAbandoned() (abandoned, known bool) {
	path, local := strings.CutPrefix(c.spec.Engine, "unix://")
	if !local {
		return false, false
	}
	conn, err := (&net.Dialer{Timeout: c.timeouts.Call}).DialContext(c.ctx, "unix", path)
	if err == nil {
		_ = conn.Close()
	}
	abandoned = errors.Is(err, syscall.ECONNREFUSED)
	return abandoned, abandoned || errors.Is(err, fs.ErrNotExist)
}

// inspect asks the engine for the container over a new connection: it may be another engine, of another version. It returns either the source
// of the container's output, or how it ended.
func (c *Container) inspect(o *outage) (*outputSource, *proctree.ExitStatus, error) {
	e, err := docker.Open(c.spec.Engine)
	if err != nil {
		return nil, nil, err
	}
	c.mu.Lock()
	prev := c.engine
	c.engine = e
	c.mu.Unlock()
	_ = prev.Close() // it has no connections whose close could fail
	ctx, cancel := context.WithTimeout(c.ctx, c.timeouts.Call)
	defer cancel()
	s, err := e.State(ctx, c.spec.ID)
	if err != nil {
		return nil, nil, err
	}
	info, err := e.Info(ctx)
	if err != nil {
		return nil, nil, err
	}
	out, err := e.Logs(c.ctx, c.spec.ID, s.Running, c.timeouts.Call)
	switch {
	case err == nil:
		src := &outputSource{Output: out, replay: c.newReplay(o.at)}
		if s.Running {
			return src, nil, nil
		}
		c.handler.OnExit()
		c.copyRemaining(src)
	case engineUnavailable(err):
		return nil, nil, err
	default:
		c.handler.LogLine("cannot read what the task printed meanwhile: " + err.Error())
		if s.Running {
			out, err := e.Attach(ctx, c.spec.ID)
			return &outputSource{Output: out}, nil, err
		}
	}
	return nil, c.classifyExit(o, s, info.LiveRestore || info.Name == "podman"), nil // Podman's service holds no containers
}

// engineUnavailable reports whether an error means that the engine is unreachable, or slow.
func engineUnavailable(err error) bool {
	return errors.Is(err, docker.ErrUnreachable) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// copyRemaining copies the remaining output of an exited container.
func (c *Container) copyRemaining(src *outputSource) {
	timer := time.AfterFunc(c.timeouts.Drain, func() { _ = src.Close() })
	defer timer.Stop()
	defer func() { _ = src.Close() }()
	if err := c.copyOutput(src); err != nil {
		c.handler.LogLine("the end of the task's output may be missing: " + err.Error())
	}
}

// classifyExit returns how a container ended that has exited. An engine that shuts down ends its containers; their exits are not their own
// then, whatever the exit code.
func (c *Container) classifyExit(o *outage, s *docker.State, liveRestore bool) *proctree.ExitStatus {
	if s.Removing && !c.stopRequested() {
		return engineFailure(msgRemoved)
	}
	x := exitStatusOf(s.ExitCode)
	x.OOM = s.ExitCode != 0 && s.OOM
	earliest := o.at.Add(-outputGrace) // this process may have noticed the end of the connections late
	before := o.at
	if x.Signal != "" {
		before = earliest
	}
	switch {
	case c.stopRequested(), !o.engineDown, liveRestore, x.OOM,
		o.crashed && (o.exited || x.Signal == ""), // a crashed engine stops no containers
		!o.exited && s.Finished.Before(before):
		if o.engineDown && !o.exited && s.Finished.After(earliest) {
			c.handler.LogLine("the task ended while the container engine was unreachable: what it printed meanwhile may be missing")
		}
		return &x
	}
	return engineFailure("the container engine was stopped and ended the task's container")
}

const msgRemoved = "the task's container was removed from the engine while it ran"

// engineFailure is the status of an end that the engine caused: engine_failed. Only the server declares an attempt lost.
func engineFailure(message string) *proctree.ExitStatus {
	return &proctree.ExitStatus{Code: -1, Stopped: &run.Stopped{Outcome: muster.AttemptFailed, Reason: muster.EngineFailed, Message: message}}
}
