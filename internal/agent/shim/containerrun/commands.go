package containerrun

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/wake"
)

// commands is what is to be done to a container once its engine responds. One goroutine carries it out, in order: a hung engine may still
// execute a call that timed out, and no later call may be undone by it.
type commands struct {
	signal        string             // to send, "" for none
	kill          bool               // it is to be killed
	stopRequested bool               // a signal or a kill was requested: a later end is not the task's own
	frozen        bool               // it is paused, or may be
	freeze        *freezeRequest     // pending request, nil for none
	thaw          bool               // a freeze that timed out is to be undone
	cancel        context.CancelFunc // of the current call if a kill may interrupt it, or nil
}

// freezeRequest asks to stop all processes, or to continue them.
type freezeRequest struct {
	on   bool
	done chan error // buffered
}

// Signal sends a signal to the main process, asynchronously. A frozen container is thawed for it.
func (c *Container) Signal(name string) {
	c.update(func(o *commands) { o.signal, o.stopRequested = name, true })
}

// Kill kills the container, asynchronously.
func (c *Container) Kill() {
	c.update(func(o *commands) {
		o.kill, o.stopRequested = true, true
		if o.cancel != nil {
			o.cancel()
		}
	})
}

// Freeze stops all processes of the container, or continues them. If the engine does not respond in time, it is not done later either.
func (c *Container) Freeze(on bool) error {
	f := &freezeRequest{on: on, done: make(chan error, 1)}
	c.update(func(o *commands) {
		if o.freeze != nil {
			o.freeze.done <- c.timeoutError()
		}
		o.freeze = f
	})
	timer := time.NewTimer(c.timeouts.Call)
	defer timer.Stop()
	select {
	case err := <-f.done:
		return err
	case <-timer.C:
	case <-c.ctx.Done():
	}
	c.update(func(o *commands) {
		o.thaw = o.thaw || on
		if o.freeze == f {
			o.freeze = nil
		}
	})
	return c.timeoutError()
}

func (c *Container) timeoutError() error {
	return run.Failf(muster.EngineFailed, "the container engine at %s did not execute the request in time", c.spec.Engine)
}

func (c *Container) update(change func(o *commands)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(&c.commands)
	wake.Set(c.wake)
}

func (c *Container) pending() commands {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.commands
}

// stopRequested reports whether a signal or a kill was requested.
func (c *Container) stopRequested() bool { return c.pending().stopRequested }

// runCommands carries out commands until the container has ended. Failed calls are retried; the container is given up if the engine does not
// kill it for Timeouts.Outage.
func (c *Container) runCommands() {
	var (
		retry        <-chan time.Time
		failingSince time.Time // of the first failure in a row
		delay        = c.timeouts.RetryDelay
	)
	for {
		select {
		case <-c.ctx.Done():
			return
		case <-c.wake:
		case <-retry:
		}
		retry = nil
		err := c.runPending()
		switch {
		case err == nil:
			failingSince, delay = time.Time{}, c.timeouts.RetryDelay
			continue
		case c.ctx.Err() != nil:
			return
		case failingSince.IsZero():
			failingSince = time.Now()
			c.log.Warn("container engine did not execute a request, retrying", slog.Any("error", err))
		case time.Since(failingSince) > c.timeouts.Outage && c.pending().kill:
			c.cancel(fmt.Errorf("the container engine at %s has not ended the task's container for %s", c.spec.Engine, c.timeouts.Outage))
			return
		}
		retry = time.After(delay)
		delay = c.timeouts.nextDelay(delay)
	}
}

func (t Timeouts) nextDelay(delay time.Duration) time.Duration { return min(2*delay, 20*t.RetryDelay) }

func (c *Container) runPending() error {
	for {
		o := c.pending()
		var err error
		switch {
		case o.kill, o.signal != "":
			err = c.sendSignal(&o)
		case o.freeze != nil:
			c.applyFreeze(o.freeze)
		case o.thaw:
			err = c.unfreeze()
		default:
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// sendSignal sends the pending signal. A frozen container is thawed first: it cannot handle the signal.
func (c *Container) sendSignal(o *commands) error {
	if o.frozen || o.thaw {
		if err := c.unfreeze(); err != nil {
			return err
		}
	}
	signal := o.signal
	if o.kill {
		signal = ""
	}
	err := c.callEngine(c.timeouts.Call, !o.kill, func(ctx context.Context) error { return c.current().Kill(ctx, c.spec.ID, signal) })
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.commands.frozen = true // a possible cause
		return err
	}
	c.commands.kill = c.commands.kill && !o.kill
	if o.kill || c.commands.signal == o.signal {
		c.commands.signal = ""
	}
	return nil
}

// applyFreeze carries out a freeze request, with a longer timeout than the requester's. A failure is only reported, but what it may have done
// is undone.
func (c *Container) applyFreeze(f *freezeRequest) {
	if !f.on {
		c.finishFreeze(f, c.unfreeze())
		return
	}
	c.mu.Lock()
	c.commands.frozen = true
	c.mu.Unlock()
	err := c.callEngine(c.timeouts.Outage, true, func(ctx context.Context) error { return c.current().Pause(ctx, c.spec.ID, true) })
	c.finishFreeze(f, err)
}

func (c *Container) finishFreeze(f *freezeRequest, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.commands.freeze == f {
		c.commands.freeze = nil
		c.commands.thaw = err != nil && f.on
		f.done <- err
	}
}

// unfreeze continues all processes.
func (c *Container) unfreeze() error {
	if err := c.callEngine(c.timeouts.Call, false, func(ctx context.Context) error { return c.current().Pause(ctx, c.spec.ID, false) }); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.commands.frozen, c.commands.thaw = false, false
	return nil
}

// callEngine calls the engine. A kill interrupts a preemptible call.
func (c *Container) callEngine(timeout time.Duration, preemptible bool, do func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(c.ctx, timeout)
	defer cancel()
	c.mu.Lock()
	if preemptible {
		c.commands.cancel = cancel
		if c.commands.kill {
			cancel()
		}
	}
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.commands.cancel = nil
	}()
	return do(ctx)
}
