package vessel

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
	"github.com/muster-dev/muster/internal/agent/shim/kin"
)

// absence is what is known of an engine that went away.
type absence struct {
	turn
	long    bool // it was not there when it was looked for: else only the connection broke
	crashed bool // it left its socket behind, on which nobody listens: it was not stopped
	known   bool // whether it crashed: what becomes of the socket later is the next engine's doing
}

// resume finds the container again after its engine was away. It returns what it prints since
// then, or how it ended.
func (v *Vessel) resume(end turn) (*source, *kin.Ended) {
	a := &absence{turn: end}
	until := time.Now().Add(v.p.Away)
	defer func() {
		if a.long {
			v.hears.Waits("")
		}
	}()
	for pause := v.p.Pause; ; pause = v.p.longer(pause) {
		src, x, err := v.look(a)
		switch {
		case err == nil:
			if a.long && src != nil {
				v.hears.Say("the container engine is back, and the task goes on")
			}
			return src, x
		case v.ctx.Err() != nil:
			return nil, lost(context.Cause(v.ctx).Error())
		case errors.Is(err, docker.ErrMissing) && v.told():
			x := endedBy(sigkill)
			return nil, &x
		case errors.Is(err, docker.ErrMissing):
			return nil, lost(removed)
		case time.Now().After(until):
			return nil, lost(fmt.Sprintf("the container engine at %s went away and was not back after %s", v.c.Engine, v.p.Away))
		case !a.long:
			a.long = true
			v.log.Warn("the container engine went away", slog.Any("error", err))
			v.hears.Say("the container engine does not answer any more: waiting for it to come back; the task may be going on meanwhile")
			v.hears.Waits("waiting for the container engine to come back")
		}
		if !a.known {
			a.crashed, a.known = v.deserted()
		}
		select {
		case <-time.After(pause):
		case <-v.ctx.Done():
		}
	}
}

// deserted reports whether an engine's socket is there and nobody listens: one that is stopped
// removes it. Neither is known while somebody listens.
func (v *Vessel) deserted() (is, known bool) {
	path, local := strings.CutPrefix(v.c.Engine, "unix://")
	if !local {
		return false, false
	}
	conn, err := (&net.Dialer{Timeout: v.p.Call}).DialContext(v.ctx, "unix", path)
	if err == nil {
		_ = conn.Close()
	}
	is = errors.Is(err, syscall.ECONNREFUSED)
	return is, is || errors.Is(err, fs.ErrNotExist)
}

// look asks the engine for the container over new connections: it may be another one, of another
// version. It returns either what the container prints, or how it ended.
func (v *Vessel) look(a *absence) (*source, *kin.Ended, error) {
	e, err := docker.Open(v.c.Engine)
	if err != nil {
		return nil, nil, err
	}
	v.mu.Lock()
	before := v.engine
	v.engine = e
	v.mu.Unlock()
	_ = before.Close() // it keeps no connection that could fail
	ctx, cancel := context.WithTimeout(v.ctx, v.p.Call)
	defer cancel()
	s, err := e.State(ctx, v.c.ID)
	if err != nil {
		return nil, nil, err
	}
	about, err := e.About(ctx)
	if err != nil {
		return nil, nil, err
	}
	out, err := e.Logs(v.ctx, v.c.ID, s.Running, v.p.Call)
	switch {
	case err == nil:
		src := &source{Output: out, gap: v.gap(a.at)}
		if s.Running {
			return src, nil, nil
		}
		v.hears.Hurry()
		v.rest(src)
	case gone(err):
		return nil, nil, err
	default:
		v.hears.Say("what the task printed meanwhile cannot be had: " + err.Error())
		if s.Running {
			out, err := e.Attach(ctx, v.c.ID)
			return &source{Output: out}, nil, err
		}
	}
	return nil, v.judge(a, s, about.LiveRestore || about.Name == "podman"), nil // whose service holds nothing
}

// gone reports whether an error says that the engine is away, or slow.
func gone(err error) bool {
	return errors.Is(err, docker.ErrDown) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// rest reads what is left of the output of a container that has ended.
func (v *Vessel) rest(src *source) {
	late := time.AfterFunc(v.p.Drain, func() { _ = src.Close() })
	defer late.Stop()
	defer func() { _ = src.Close() }()
	if err := v.pass(src); err != nil {
		v.hears.Say("the end of the task's output may be missing: " + err.Error())
	}
}

// judge tells how a container ended that was found ended. An engine that is stopped ends its
// containers then; what they make of its signal is not their own end, whatever their exit
// code is.
func (v *Vessel) judge(a *absence, s *docker.State, keeps bool) *kin.Ended {
	if s.Going && !v.told() {
		return lost(removed)
	}
	x := endedBy(s.Code)
	x.OOM = s.Code != 0 && s.OOM
	early := a.at.Add(-settle) // this process may have had no turn when the connections were closed
	before := a.at
	if x.Signal != "" {
		before = early
	}
	switch {
	case v.told(), !a.long, keeps, x.OOM,
		a.crashed && (a.told || x.Signal == ""), // until it is back, it stops nothing
		!a.told && s.Finished.Before(before):
		if a.long && !a.told && s.Finished.After(early) {
			v.hears.Say("the task ended while the container engine was away: what it printed meanwhile may be missing")
		}
		return &x
	}
	return lost("the container engine stopped the task's container when it was stopped itself")
}

const removed = "its container was removed from the engine while it ran"

// lost is the end of what the engine is to blame for. It failed: that an attempt is lost is for the
// server to say.
func lost(message string) *kin.Ended {
	return &kin.Ended{Code: -1, Stopped: &run.Stopped{Outcome: muster.AttemptFailed, Reason: muster.EngineFailed, Message: message}}
}
