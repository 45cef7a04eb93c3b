package agent

import (
	"slices"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/link"
)

const (
	progressEvery = 250 * time.Millisecond // for one attempt
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
	said := r.ready || len(r.rejected) > 0
	if r.ready {
		f.Ready = &link.Ready{Constrained: r.closing}
		r.ready = false
	}
	f.Rejected, r.rejected = r.rejected, nil

	wait = min(wait, r.releaseSlow(now))
	all := r.sayAttempts(f, now)
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
	if !said && len(logs)+len(f.Accepted)+len(f.Started)+len(f.Progress)+len(f.Finished) == 0 {
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
// that took.
func (r *roster) sayRunning(f *link.ToServer, at *attempt, now time.Duration) int {
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
	if at.progress == nil {
		return room
	}
	if at.progressAt != 0 && now < at.progressAt+progressEvery {
		if !at.slow {
			at.slow = true
			r.slow = append(r.slow, at)
		}
		return room
	}
	room += 100 + 40*len(at.progress.Metrics)
	if at.progress.Step != nil {
		room += 6 * len(*at.progress.Step)
	}
	f.Progress = append(f.Progress, *at.progress)
	at.progress, at.progressAt = nil, now
	return room
}

// releaseSlow lets progress whose turn has come be said, and returns how long the
// rest has to wait.
func (r *roster) releaseSlow(now time.Duration) time.Duration {
	wait := time.Hour
	r.slow = slices.DeleteFunc(r.slow, func(at *attempt) bool {
		due := at.progressAt + progressEvery
		if at.running() && now < due {
			wait = min(wait, due-now)
			return false
		}
		at.slow = false
		if at.running() {
			r.say(at)
		}
		return true
	})
	return wait
}

// sayRenew adds the heartbeat. A report that left in this session, this frame
// included, is no longer held: the server has ended that attempt by then.
func (r *roster) sayRenew(f *link.ToServer, load *muster.Load, now time.Duration) {
	f.Renew = &link.Renew{Load: load, Held: r.ids(func(at *attempt) bool {
		return !at.gone && !at.acked && !at.reported
	})}
	f.Ping = true
	if r.pinged == 0 {
		r.pinged = now
	}
	r.findGrace()
	r.beatLast = now
	r.beatAt = now + max(minBeat, min(r.beat, r.minGrace/4))
	if r.inflight > 0 && now-r.logMoved > logStall {
		r.rewindLogs()
	}
}

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
