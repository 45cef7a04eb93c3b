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
func (tbl *attemptTable) expire(now time.Duration) {
	if tbl.executing == 0 || now-tbl.lastContact <= tbl.minGrace {
		return
	}
	for _, at := range tbl.held {
		if !at.running() || !at.leaseExpired(now, tbl.lastContact) {
			continue
		}
		tbl.log.Warn("the server was away for longer than the attempt may go on; killing it",
			slog.String("attempt", at.id.String()), slog.Duration("grace", at.grace))
		tbl.drop(at, errLeaseEnded)
		tbl.traffic.Expired++
	}
	tbl.findGrace()
}

var errLeaseEnded = &run.Stopped{Outcome: muster.AttemptLost, Reason: muster.WorkerLost, Message: "its lease ended while the server was away"}

// findGrace finds the smallest grace of what runs.
func (tbl *attemptTable) findGrace() {
	tbl.minGrace = defaultGrace
	for _, at := range tbl.held {
		if at.running() {
			tbl.minGrace = min(tbl.minGrace, at.grace)
		}
	}
}

// onContact takes up a sign of life from the server; pong says that it answers our
// ping. What expired before it came is not revived by it. It returns the last
// contact.
func (tbl *attemptTable) onContact(pong bool) (contact time.Duration) {
	tbl.mu.Lock()
	defer tbl.mu.Unlock()
	tbl.expire(tbl.clock())
	if pong && tbl.pingSentAt != 0 {
		tbl.lastContact, tbl.pingSentAt = max(tbl.lastContact, tbl.pingSentAt), 0
	}
	return tbl.lastContact
}

// hello says what is held and offered, of which other attempts something is left here, and why nothing new is taken. The
// session that follows counts from here.
func (tbl *attemptTable) hello() (held, stale []muster.AttemptID, offer *link.Offer, constrained string, at time.Duration) {
	tbl.mu.Lock()
	defer tbl.mu.Unlock()
	now := tbl.clock()
	tbl.expire(now)
	current := func(at *attempt) bool { return !at.dropped && !at.acked }
	return tbl.ids(current), tbl.ids(func(at *attempt) bool { return !current(at) }), tbl.currentOffer(), tbl.constrained(), now
}

// onWelcome begins a session: all is to be said anew. since is when hello was
// asked. It returns the last contact.
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
	trySend(tbl.wake)
	return tbl.lastContact
}

var errAttemptDropped = &run.Stopped{Outcome: muster.AttemptLost, Reason: muster.WorkerLost, Message: "the server gave the attempt up"}

// onDisconnect ends a session: until the next one reports go to the keep at once.
func (tbl *attemptTable) onDisconnect() {
	tbl.mu.Lock()
	defer tbl.mu.Unlock()
	tbl.connected = false
	tbl.dirty, tbl.deferred, tbl.rejected = nil, nil, nil
	trySend(tbl.ioWake)
}

// leaseCheckInterval is how often leases are looked at while nothing is said or heard.
const leaseCheckInterval = time.Second

// watchLeases kills what outlives its lease while the server is away.
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
