package agent

import (
	"context"
	"log/slog"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/link"
)

// expire forgets the running attempts that outlived their leases. It precedes
// everything that is said or heard. The lock is held.
func (r *roster) expire(now time.Duration) {
	if r.executes == 0 || now-r.contact <= r.minGrace {
		return
	}
	for _, at := range r.held {
		if !at.running() || !at.overdue(now, r.contact) {
			continue
		}
		r.log.Warn("the server was away for longer than the attempt may go on; killing it",
			slog.String("attempt", at.id.String()), slog.Duration("grace", at.grace))
		r.forget(at, errLeaseEnded)
		r.traffic.Expired++
	}
	r.findGrace()
}

var errLeaseEnded = &run.Stopped{Outcome: muster.AttemptLost, Reason: muster.WorkerLost, Message: "its lease ended while the server was away"}

// findGrace finds the smallest grace of what runs.
func (r *roster) findGrace() {
	r.minGrace = defaultGrace
	for _, at := range r.held {
		if at.running() {
			r.minGrace = min(r.minGrace, at.grace)
		}
	}
}

// heard takes up a sign of life from the server; pong says that it answers our
// ping. What expired before it came is not revived by it. It returns the last
// contact.
func (r *roster) heard(pong bool) (contact time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.expire(r.clock())
	if pong && r.pinged != 0 {
		r.contact, r.pinged = max(r.contact, r.pinged), 0
	}
	return r.contact
}

// hello says what is held and offered, of which other attempts something is left here, and why nothing new is taken. The
// session that follows counts from here.
func (r *roster) hello() (held, stale []muster.AttemptID, offer *link.Offer, constrained string, at time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.clock()
	r.expire(now)
	current := func(at *attempt) bool { return !at.gone && !at.acked }
	return r.ids(current), r.ids(func(at *attempt) bool { return !current(at) }), r.currentOffer(), r.constrained(), now
}

// welcome begins a session: all is to be said anew. since is when hello was
// asked. It returns the last contact.
func (r *roster) welcome(w *link.Welcome, since time.Duration) (contact time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.clock()
	r.contact = max(r.contact, since)
	r.expire(now)
	for _, id := range w.Stop {
		if at := r.held[id]; at != nil {
			r.forget(at, errDropped)
		}
	}
	for _, k := range w.Keep {
		if at := r.held[k.Attempt]; at != nil {
			at.logAcked = min(k.Size, at.logSize)
		}
	}
	r.connected, r.ready, r.offered = true, true, false
	r.traffic.Sessions++
	r.beat, r.beatAt, r.pinged = w.Heartbeat.Std(), now, 0
	r.talk, r.later, r.rejected = nil, nil, nil
	for _, at := range r.held {
		at.told, at.queued, at.later, at.reported = toldNothing, false, false, false
		at.saySaved = at.saved != ""
		at.reportAgain()
		if !at.gone && !at.acked {
			r.say(at)
		}
		r.settle(at)
	}
	r.rewindLogs()
	token(r.wake)
	return r.contact
}

var errDropped = &run.Stopped{Outcome: muster.AttemptLost, Reason: muster.WorkerLost, Message: "the server gave the attempt up"}

// disconnected ends a session: until the next one reports go to the keep at once.
func (r *roster) disconnected() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.connected = false
	r.talk, r.later, r.rejected = nil, nil, nil
	token(r.saving)
}

// leaseCheck is how often leases are looked at while nothing is said or heard.
const leaseCheck = time.Second

// watchLeases kills what outlives its lease while the server is away.
func (r *roster) watchLeases(ctx context.Context) error {
	tick := time.NewTicker(leaseCheck)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		r.mu.Lock()
		r.expire(r.clock())
		r.mu.Unlock()
	}
}
