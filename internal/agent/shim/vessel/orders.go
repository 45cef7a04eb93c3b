package vessel

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
)

// orders are what is to be done to a container, as soon as its engine can. One goroutine
// carries them out, one after the other: a call that was given up may still be heard by an engine
// that stood still, and nothing may be asked for that it would undo then.
type orders struct {
	signal string             // to be sent, "" for none
	kill   bool               // it is to be killed
	told   bool               // one of these was ordered at some time: it does not end by itself any more
	frozen bool               // it is paused, or may be
	freeze *freeze            // that somebody waits for, nil for none
	thaw   bool               // what nobody waited for any more is to be undone
	cancel context.CancelFunc // of the call under way that a kill need not wait for, nil for none
}

// freeze is the order to stop all processes, or to let them go on.
type freeze struct {
	on   bool
	done chan error // has room for the answer
}

// Signal has a signal sent to the main process, soon. What is frozen is thawed for it.
func (v *Vessel) Signal(name string) {
	v.order(func(o *orders) { o.signal, o.told = name, true })
}

// Kill has all of the container killed, soon.
func (v *Vessel) Kill() {
	v.order(func(o *orders) {
		o.kill, o.told = true, true
		if o.cancel != nil {
			o.cancel()
		}
	})
}

// Freeze stops all processes of the container, or lets them go on. When the engine does not do
// it in time, it is not done later either.
func (v *Vessel) Freeze(on bool) error {
	f := &freeze{on: on, done: make(chan error, 1)}
	v.order(func(o *orders) {
		if o.freeze != nil {
			o.freeze.done <- v.slow()
		}
		o.freeze = f
	})
	late := time.NewTimer(v.p.Call)
	defer late.Stop()
	select {
	case err := <-f.done:
		return err
	case <-late.C:
	case <-v.ctx.Done():
	}
	v.order(func(o *orders) {
		o.thaw = o.thaw || on
		if o.freeze == f {
			o.freeze = nil
		}
	})
	return v.slow()
}

func (v *Vessel) slow() error {
	return run.Failf(muster.EngineFailed, "the container engine at %s does not do what it is told", v.c.Engine)
}

func (v *Vessel) order(change func(o *orders)) {
	v.mu.Lock()
	defer v.mu.Unlock()
	change(&v.orders)
	select {
	case v.poke <- struct{}{}:
	default:
	}
}

// now returns what is ordered.
func (v *Vessel) now() orders {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.orders
}

// told reports whether the container was told to end.
func (v *Vessel) told() bool { return v.now().told }

// carry carries orders out until the vessel has ended. What an engine does not do is tried
// again; when it does not kill, it is given up after a while.
func (v *Vessel) carry() {
	var (
		again <-chan time.Time
		since time.Time // of the first failure in a row
		pause = v.p.Pause
	)
	for {
		select {
		case <-v.ctx.Done():
			return
		case <-v.poke:
		case <-again:
		}
		again = nil
		err := v.carryOut()
		switch {
		case err == nil:
			since, pause = time.Time{}, v.p.Pause
			continue
		case v.ctx.Err() != nil:
			return
		case since.IsZero():
			since = time.Now()
			v.log.Warn("the container engine does not do what it is told; trying again", slog.Any("error", err))
		case time.Since(since) > v.p.Away && v.now().kill:
			v.done(fmt.Errorf("the container engine at %s has not ended the task's container for %s", v.c.Engine, v.p.Away))
			return
		}
		again = time.After(pause)
		pause = v.p.longer(pause)
	}
}

// longer is the pause after one.
func (p Patience) longer(pause time.Duration) time.Duration { return min(2*pause, 20*p.Pause) }

// carryOut does what is due.
func (v *Vessel) carryOut() error {
	for {
		o := v.now()
		var err error
		switch {
		case o.kill, o.signal != "":
			err = v.end(&o)
		case o.freeze != nil:
			v.pause(o.freeze)
		case o.thaw:
			err = v.unfreeze(v.p.Call)
		default:
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// end sends the signal that is due. What is frozen is thawed first: it cannot end.
func (v *Vessel) end(o *orders) error {
	if o.frozen || o.thaw {
		if err := v.unfreeze(v.p.Call); err != nil {
			return err
		}
	}
	signal := o.signal
	if o.kill {
		signal = ""
	}
	err := v.call(v.p.Call, !o.kill, func(ctx context.Context) error { return v.current().Kill(ctx, v.c.ID, signal) })
	v.mu.Lock()
	defer v.mu.Unlock()
	if err != nil {
		v.orders.frozen = true // which may be why
		return err
	}
	v.orders.kill = v.orders.kill && !o.kill
	if o.kill || v.orders.signal == o.signal {
		v.orders.signal = ""
	}
	return nil
}

// pause carries out a freeze, and waits for the engine longer than whoever wants it. Its failure is
// for that one alone, but what it may have done is undone.
func (v *Vessel) pause(f *freeze) {
	if !f.on {
		err := v.unfreeze(v.p.Call)
		v.frozen(f, err)
		return
	}
	v.mu.Lock()
	v.orders.frozen = true
	v.mu.Unlock()
	err := v.call(v.p.Away, true, func(ctx context.Context) error { return v.current().Pause(ctx, v.c.ID, true) })
	v.frozen(f, err)
}

// frozen answers a freeze.
func (v *Vessel) frozen(f *freeze, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.orders.freeze == f {
		v.orders.freeze = nil
		v.orders.thaw = err != nil && f.on
		f.done <- err
	}
}

// unfreeze lets all processes go on.
func (v *Vessel) unfreeze(atMost time.Duration) error {
	if err := v.call(atMost, false, func(ctx context.Context) error { return v.current().Pause(ctx, v.c.ID, false) }); err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.orders.frozen, v.orders.thaw = false, false
	return nil
}

// call asks the engine for something. Where a kill need not wait for it, it ends it.
func (v *Vessel) call(atMost time.Duration, yields bool, ask func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(v.ctx, atMost)
	defer cancel()
	v.mu.Lock()
	if yields {
		v.orders.cancel = cancel
		if v.orders.kill {
			cancel()
		}
	}
	v.mu.Unlock()
	defer func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.orders.cancel = nil
	}()
	return ask(ctx)
}
