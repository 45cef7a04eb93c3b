package agent

import (
	"slices"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/link"
)

const (
	progressEvery = 500 * time.Millisecond // for one attempt
	startHold     = 5 * time.Millisecond   // how long a busy worker keeps a start to itself: see sayRunning
	frameRoom     = maxReport              // for words of attempts; the rest is for logs and the heartbeat
	frameReports  = 2048                   // so that the server can begin with the first
)

// say notes that there is something to say about at. The lock is held.
func (r *roster) say(at *attempt) {
	if at.queued || !r.connected {
		return // or all is said anew in the next session
	}
	at.queued = true
	r.talk = append(r.talk, at)
	if !at.inline {
		token(r.wake)
	}
}

// beatDue reports whether the next frame is to carry a Renew.
func (r *roster) beatDue() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.connected && r.clock() >= r.beatAt
}

// next makes the next frame: all that is to be said now. It returns nil if that
// is nothing, and then how long that stays so unless the roster is woken. load
// is for a Renew that is due. The log bytes are read by the caller.
func (r *roster) next(load *muster.Load) (f *link.ToServer, logs []logRange, wait time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.clock()
	r.expire(now)
	if !r.connected || r.left {
		return nil, nil, time.Hour
	}
	f = &link.ToServer{}
	wait = max(r.beatAt-now, 0)
	said := r.ready || r.offered || len(r.rejected) > 0
	if r.ready {
		f.Ready = &link.Ready{Constrained: r.constrained()}
		r.ready = false
	}
	if r.offered {
		f.Offer = r.currentOffer()
		r.offered = false
	}
	f.Rejected, r.rejected = r.rejected, nil

	r.releaseLater(now)
	all := r.sayAttempts(f, now)
	wait = min(wait, r.laterDue(now))
	logs, next := r.nextLogs(now)
	wait = min(wait, next)
	if now >= r.beatAt {
		r.sayRenew(f, load, now)
		said = true
	}
	if r.leaving && all && len(logs) == 0 {
		f.Goodbye = &link.Goodbye{}
		r.left, said = true, true
	}
	if !said && len(logs)+len(f.Accepted)+len(f.Started)+len(f.Progress)+len(f.Saved)+len(f.Finished) == 0 {
		return nil, nil, wait
	}
	return f, logs, 0
}

// sayAttempts moves words of attempts to f until it is full; it reports whether
// all of them are said.
func (r *roster) sayAttempts(f *link.ToServer, now time.Duration) (all bool) {
	room := frameRoom
	for i, at := range r.talk {
		if room < at.size && room < frameRoom || room <= 0 || len(f.Finished) >= frameReports {
			r.talk = slices.Delete(r.talk, 0, i)
			token(r.wake)
			return false
		}
		at.queued = false
		switch {
		case at.gone:
		case at.report != nil:
			if at.reported || at.acked {
				continue
			}
			if at.progress != nil {
				f.Progress = append(f.Progress, *at.progress)
				at.progress = nil
			}
			at.sayCheckpoint(f)
			f.Finished = append(f.Finished, *at.report)
			at.reported = true
			room -= at.size
		default:
			room -= r.sayRunning(f, at, now)
		}
	}
	clear(r.talk)
	r.talk = r.talk[:0]
	return true
}

// sayRunning says how far a running attempt is, and returns about how much room
// that took. While other attempts run, too, a start is held back for a moment:
// many tasks end before it is over, and then one word, and one commit of the
// server's, says it all.
func (r *roster) sayRunning(f *link.ToServer, at *attempt, now time.Duration) int {
	if at.told < toldStarted && at.progress == nil && !at.saySaved && r.executes > 1 && now < at.since+startHold {
		r.sayLater(at, at.since+startHold)
		return 0
	}
	room := 0
	switch {
	case at.started != 0 && at.told < toldStarted:
		f.Started = append(f.Started, link.Started{Attempt: at.id, At: at.started})
		at.told = toldStarted
		room += 80
	case at.told < toldAccepted:
		f.Accepted = append(f.Accepted, at.id)
		at.told = toldAccepted
		room += 30
	}
	room += at.sayCheckpoint(f)
	if at.progress == nil {
		return room
	}
	if at.progressAt != 0 && now < at.progressAt+progressEvery {
		r.sayLater(at, at.progressAt+progressEvery)
		return room
	}
	room += 100 + 40*len(at.progress.Metrics)
	if at.progress.Step != nil {
		room += 6 * len(*at.progress.Step)
	}
	for i := range at.progress.Artifacts {
		room += 256 + 6*len(at.progress.Artifacts[i].Name)
	}
	f.Progress = append(f.Progress, *at.progress)
	at.progress, at.progressAt = nil, now
	return room
}

// sayCheckpoint says where the attempt's checkpoint is, and returns about how
// much room that took.
func (at *attempt) sayCheckpoint(f *link.ToServer) int {
	if !at.saySaved {
		return 0
	}
	f.Saved = append(f.Saved, link.Saved{Attempt: at.id, SHA256: at.saved})
	at.saySaved = false
	return 120
}

// reportAgain has the attempt's progress sent in a new session: the server may have lost what it had of it.
func (at *attempt) reportAgain() {
	if at.latest == nil {
		return
	}
	at.progress = merged(nil, at.latest)
	if at.report != nil {
		at.progress.Artifacts = nil // the report has them
	}
}

// sayLater notes that there is something to say about at when due comes.
func (r *roster) sayLater(at *attempt, due time.Duration) {
	at.due = due
	if !at.later {
		at.later = true
		r.later = append(r.later, at)
	}
}

// releaseLater lets be said what has come due.
func (r *roster) releaseLater(now time.Duration) {
	r.later = slices.DeleteFunc(r.later, func(at *attempt) bool {
		if at.running() && now < at.due {
			return false
		}
		at.later = false
		if at.running() {
			r.say(at)
		}
		return true
	})
}

// laterDue returns how long it is until something of it comes due.
func (r *roster) laterDue(now time.Duration) time.Duration {
	wait := time.Hour
	for _, at := range r.later {
		wait = min(wait, at.due-now)
	}
	return max(wait, 0)
}

// sayRenew adds the heartbeat. A report that left in this session, this frame
// included, is no longer held: the server has ended that attempt by then.
func (r *roster) sayRenew(f *link.ToServer, load *muster.Load, now time.Duration) {
	f.Renew = &link.Renew{Load: load, Held: r.ids(func(at *attempt) bool {
		return !at.gone && !at.acked && !at.reported
	})}
	if r.pinged == 0 { // one at a time, so that it is known which one a pong answers
		f.Ping, r.pinged = true, now
	}
	r.findGrace()
	r.beatLast = now
	r.beatAt = now + r.pause()
	if r.inflight > 0 && now-r.logMoved > logStall {
		r.rewindLogs()
	}
}

// pause is how long it is from one heartbeat to the next.
func (r *roster) pause() time.Duration { return max(minBeat, min(r.beat, r.minGrace/4)) }

// minBeat is the least time between two heartbeats, however short a grace is.
const minBeat = 100 * time.Millisecond

// sayGoodbye ends the session after everything else is said. It returns false if
// there is nobody to say it to.
func (r *roster) sayGoodbye() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leaving = true
	token(r.wake)
	return r.connected
}
