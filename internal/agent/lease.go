package agent

import (
	"context"
	"log/slog"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/link"
	"github.com/muster-dev/muster/internal/wake"
)

// expire drops the running attempts whose leases have ended. It precedes every frame that is sent or handled. The lock is held.
func (tbl *attemptTable) expire(now time.Duration) {
	if tbl.executing == 0 || now-tbl.lastContact <= tbl.minGrace {
		return
	}
	for _, at := range tbl.held {
		if !at.running() || !at.leaseExpired(now, tbl.lastContact) {
			continue
		}
		tbl.log.Warn("lease ended without contact to the server, killing the attempt",
			slog.String("attempt", at.id.String()), slog.Duration("grace", at.grace))
		tbl.drop(at, run.ErrLeaseEnded)
		tbl.traffic.Expired++
	}
	tbl.findGrace()
}

// findGrace updates minGrace.
func (tbl *attemptTable) findGrace() {
	tbl.minGrace = muster.DefaultDisconnectGrace.Std()
	for _, at := range tbl.held {
		if at.running() {
			tbl.minGrace = min(tbl.minGrace, at.grace)
		}
	}
}

// onContact handles a frame from the server; pong says that it answers the ping. Attempts that expired before the frame stay expired. It
// returns when the frame was handled, and the time of the last contact.
func (tbl *attemptTable) onContact(pong bool) (now, contact time.Duration) {
	tbl.mu.Lock()
	defer tbl.mu.Unlock()
	now = tbl.clock()
	tbl.expire(now)
	if pong && tbl.pingSentAt != 0 {
		tbl.lastContact, tbl.pingSentAt = max(tbl.lastContact, tbl.pingSentAt), 0
	}
	return now, tbl.lastContact
}

// fillHello adds to h the attempts that are held, attempts of which only parts are left, the offer, and why no new tasks are accepted. The
// session counts from now.
func (tbl *attemptTable) fillHello(h *link.Hello) (now time.Duration) {
	tbl.mu.Lock()
	defer tbl.mu.Unlock()
	now = tbl.clock()
	tbl.expire(now)
	current := func(at *attempt) bool { return !at.dropped && !at.acked }
	h.Held, h.Stale, h.Constrained = tbl.ids(current), tbl.ids(func(at *attempt) bool { return !current(at) }), tbl.constrained()
	h.Offer = tbl.offer
	return now
}

// onWelcome begins a session: everything is to be sent again. helloAt is when hello was called. It returns the time of the last contact.
func (tbl *attemptTable) onWelcome(w *link.Welcome, helloAt time.Duration) (contact time.Duration) {
	tbl.mu.Lock()
	defer tbl.mu.Unlock()
	now := tbl.clock()
	tbl.lastContact = max(tbl.lastContact, helloAt)
	tbl.expire(now)
	for _, id := range w.Stop {
		if at := tbl.held[id]; at != nil {
			tbl.drop(at, errAttemptDropped)
		}
	}
	for _, k := range w.Keep {
		if at := tbl.held[k.Attempt]; at != nil {
			at.logAcked = min(k.Size, at.logSize)
		}
	}
	tbl.connected, tbl.readyDirty, tbl.offerDirty = true, true, false
	tbl.traffic.Sessions++
	tbl.heartbeat, tbl.nextHeartbeat, tbl.pingSentAt = w.Heartbeat.Std(), now, 0
	tbl.dirty, tbl.deferred, tbl.rejected = nil, nil, nil
	for _, at := range tbl.held {
		at.reportedState, at.queued, at.deferred, at.reportSent = reportedNone, false, false, false
		at.checkpointDirty = at.checkpointHash != ""
		at.resendProgress()
		if !at.dropped && !at.acked {
			tbl.queue(at)
		}
		tbl.removeIfDone(at)
	}
	tbl.rewindLogs()
	wake.Set(tbl.wake)
	return tbl.lastContact
}

var errAttemptDropped = &run.Stopped{Outcome: muster.AttemptLost, Reason: muster.WorkerLost, Message: "the server dropped the attempt"}

// onDisconnect ends a session: until the next one reports are stored at once.
func (tbl *attemptTable) onDisconnect() {
	tbl.mu.Lock()
	defer tbl.mu.Unlock()
	tbl.connected = false
	tbl.dirty, tbl.deferred, tbl.rejected = nil, nil, nil
	wake.Set(tbl.ioWake)
}

// leaseCheckInterval is how often leases are checked between frames.
const leaseCheckInterval = time.Second

// watchLeases kills attempts whose leases end while the server is unreachable.
func (tbl *attemptTable) watchLeases(ctx context.Context) error {
	tick := time.NewTicker(leaseCheckInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		tbl.mu.Lock()
		tbl.expire(tbl.clock())
		tbl.mu.Unlock()
	}
}
