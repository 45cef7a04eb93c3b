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

// outage is what is known of an engine that went away.
type outage struct {
	waitResult
	engineDown bool // it was not there when it was looked for: else only the connection broke
	crashed    bool // it left its socket behind, on which nobody listens: it was not stopped
	crashKnown bool // whether it crashed: what becomes of the socket later is the next engine's doing
}

// reconnect finds the container again after its engine was away. It returns what it prints since
// then, or how it ended.
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
				c.handler.LogLine("the container engine is back, and the task goes on")
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
			return nil, engineFailure(fmt.Sprintf("the container engine at %s went away and was not back after %s", c.spec.Engine, c.timeouts.Outage))
		case !o.engineDown:
			o.engineDown = true
			c.log.Warn("the container engine went away", slog.Any("error", err))
			c.handler.LogLine("the container engine does not answer any more: waiting for it to come back; the task may be going on meanwhile")
			c.handler.OnWaiting("waiting for the container engine to come back")
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

// socketAbandoned reports whether an engine's socket is there and nobody listens: one that is stopped
// removes it. Neither is known while somebody listens.
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

// inspect asks the engine for the container over new connections: it may be another one, of another
// version. It returns either what the container prints, or how it ended.
func (c *Container) inspect(o *outage) (*outputSource, *proctree.ExitStatus, error) {
	e, err := docker.Open(c.spec.Engine)
	if err != nil {
		return nil, nil, err
	}
	c.mu.Lock()
	prev := c.engine
	c.engine = e
	c.mu.Unlock()
	_ = prev.Close() // it keeps no connection that could fail
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
		c.handler.LogLine("what the task printed meanwhile cannot be had: " + err.Error())
		if s.Running {
			out, err := e.Attach(ctx, c.spec.ID)
			return &outputSource{Output: out}, nil, err
		}
	}
	return nil, c.classifyExit(o, s, info.LiveRestore || info.Name == "podman"), nil // whose service holds nothing
}

// engineUnavailable reports whether an error says that the engine is away, or slow.
func engineUnavailable(err error) bool {
	return errors.Is(err, docker.ErrUnreachable) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// copyRemaining reads what is left of the output of a container that has ended.
func (c *Container) copyRemaining(src *outputSource) {
	timer := time.AfterFunc(c.timeouts.Drain, func() { _ = src.Close() })
	defer timer.Stop()
	defer func() { _ = src.Close() }()
	if err := c.copyOutput(src); err != nil {
		c.handler.LogLine("the end of the task's output may be missing: " + err.Error())
	}
}

// classifyExit tells how a container ended that was found ended. An engine that is stopped ends its
// containers then; what they make of its signal is not their own end, whatever their exit
// code is.
func (c *Container) classifyExit(o *outage, s *docker.State, liveRestore bool) *proctree.ExitStatus {
	if s.Removing && !c.stopRequested() {
		return engineFailure(msgRemoved)
	}
	x := exitStatusOf(s.ExitCode)
	x.OOM = s.ExitCode != 0 && s.OOM
	earliest := o.at.Add(-outputGrace) // this process may have had no turn when the connections were closed
	before := o.at
	if x.Signal != "" {
		before = earliest
	}
	switch {
	case c.stopRequested(), !o.engineDown, liveRestore, x.OOM,
		o.crashed && (o.exited || x.Signal == ""), // until it is back, it stops nothing
		!o.exited && s.Finished.Before(before):
		if o.engineDown && !o.exited && s.Finished.After(earliest) {
			c.handler.LogLine("the task ended while the container engine was away: what it printed meanwhile may be missing")
		}
		return &x
	}
	return engineFailure("the container engine stopped the task's container when it was stopped itself")
}

const msgRemoved = "its container was removed from the engine while it ran"

// engineFailure is the end of what the engine is to blame for. It failed: that an attempt is lost is for the
// server to say.
func engineFailure(message string) *proctree.ExitStatus {
	return &proctree.ExitStatus{Code: -1, Stopped: &run.Stopped{Outcome: muster.AttemptFailed, Reason: muster.EngineFailed, Message: message}}
}
