package vessel

import (
	"context"
	"log/slog"
	"time"

	"github.com/muster-dev/muster/internal/agent/docker"
)

// orders are what is to be done to a container, as soon as its engine can.
type orders struct {
	signal string             // to be sent, "" for none
	kill   bool               // it is to be killed
	told   bool               // one of these was ordered at some time: it does not end by itself any more
	frozen bool               // it was paused, or may be
	cancel context.CancelFunc // of the call under way that a kill need not wait for, nil for none
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

func (v *Vessel) order(change func(o *orders)) {
	v.mu.Lock()
	defer v.mu.Unlock()
	change(&v.orders)
	select {
	case v.poke <- struct{}{}:
	default:
	}
}

// told reports whether the container was told to end.
func (v *Vessel) told() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.orders.told
}

// Freeze stops all processes of the container, or lets them go on.
func (v *Vessel) Freeze(on bool) error {
	ctx, cancel := context.WithTimeout(v.ctx, v.p.Call)
	defer cancel()
	v.mu.Lock()
	e, was := v.engine, v.orders.frozen
	if !on && !was {
		v.mu.Unlock()
		return nil
	}
	v.orders.frozen = true // if no answer comes, it may be
	v.mu.Unlock()
	if err := e.Pause(ctx, v.c.ID, on); err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.orders.frozen = on
	return nil
}

// carry carries orders out until the vessel has ended. What an engine does not do is tried
// again until Patience ends.
func (v *Vessel) carry() {
	var (
		again <-chan time.Time
		since time.Time // of the first failure to kill
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
			v.log.Warn("a container is not ended as it is to be; trying again", slog.Any("error", err))
		case time.Since(since) > v.p.Away && v.killing():
			v.done(errGivenUp)
			return
		}
		again = time.After(pause)
		pause = v.p.longer(pause)
	}
}

// longer is the pause after one.
func (p Patience) longer(pause time.Duration) time.Duration { return min(2*pause, 20*p.Pause) }

func (v *Vessel) killing() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.orders.kill
}

// carryOut does what is due. A signal that is not taken for another reason than that
// the engine is not there is not tried again: there is the grace.
func (v *Vessel) carryOut() error {
	ctx, cancel := context.WithTimeout(v.ctx, v.p.Call)
	defer cancel()
	v.mu.Lock()
	o, e := v.orders, v.engine
	if !o.kill {
		v.orders.cancel = cancel
	}
	v.mu.Unlock()
	defer func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.orders.cancel = nil
	}()
	if !o.kill && o.signal == "" {
		return nil
	}
	if o.frozen { // what stands still cannot end itself
		if err := v.thaw(ctx, e); err != nil {
			return err
		}
	}
	signal := o.signal
	if o.kill {
		signal = ""
	}
	if err := e.Kill(ctx, v.c.ID, signal); err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.orders.signal == o.signal {
		v.orders.signal = ""
	}
	v.orders.kill = v.orders.kill && !o.kill
	return nil
}

func (v *Vessel) thaw(ctx context.Context, e *docker.Engine) error {
	if err := e.Pause(ctx, v.c.ID, false); err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.orders.frozen = false
	return nil
}
