package agent

import (
	"slices"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/progress"
	"github.com/muster-dev/muster/internal/link"
	"github.com/muster-dev/muster/internal/wake"
)

const (
	progressInterval = 500 * time.Millisecond // for one attempt
	progressGrid     = 100 * time.Millisecond // progress is due at its multiples, so that that of many attempts is in few frames
	startDelay       = 5 * time.Millisecond   // how long a busy worker delays the report of a start: see addRunning
	frameBudget      = maxReport              // bytes for messages of attempts; the rest is for logs and the heartbeat
	maxFrameReports  = 2048                   // so that the server can start with the first
)

// queue notes that at has something to send. The lock is held.
func (tbl *attemptTable) queue(at *attempt) {
	if at.queued || !tbl.connected {
		return // queued already, or sent again in the next session
	}
	at.queued = true
	tbl.dirty = append(tbl.dirty, at)
	if !at.inline {
		wake.Set(tbl.wake)
	}
}

// heartbeatDue reports whether the next frame is to have a Renew.
func (tbl *attemptTable) heartbeatDue() bool {
	tbl.mu.Lock()
	defer tbl.mu.Unlock()
	return tbl.connected && tbl.clock() >= tbl.nextHeartbeat
}

// nextFrame makes the next frame from all that is to be sent now. If there is nothing it returns nil and how long to wait, unless the table
// is woken. load is for a Renew that is due. The caller reads the log bytes.
func (tbl *attemptTable) nextFrame(load *muster.Load) (f *link.ToServer, logs []logRange, wait time.Duration) {
	tbl.mu.Lock()
	defer tbl.mu.Unlock()
	now := tbl.clock()
	tbl.expire(now)
	if !tbl.connected || tbl.goodbyeSent {
		return nil, nil, time.Hour
	}
	f = &link.ToServer{}
	wait = max(tbl.nextHeartbeat-now, 0)
	hasContent := tbl.readyDirty || tbl.offerDirty || tbl.pongDue || len(tbl.rejected) > 0
	f.Pong, tbl.pongDue = tbl.pongDue, false
	if tbl.readyDirty {
		f.Ready = &link.Ready{Constrained: tbl.constrained()}
		tbl.readyDirty = false
	}
	if tbl.offerDirty {
		offer := tbl.offer
		f.Offer, tbl.offerDirty = &offer, false
	}
	f.Rejected, tbl.rejected = tbl.rejected, nil

	tbl.queueDue(now)
	complete := tbl.addAttempts(f, now)
	wait = min(wait, tbl.nextDue(now))
	logs, next := tbl.pickLogs(now)
	wait = min(wait, next)
	if now >= tbl.nextHeartbeat {
		tbl.addRenew(f, load, now)
		hasContent = true
	}
	if tbl.goodbyeQueued && complete && len(logs) == 0 {
		f.Goodbye = &link.Goodbye{}
		tbl.goodbyeSent, hasContent = true, true
	}
	if !hasContent && len(logs)+len(f.Accepted)+len(f.Started)+len(f.Progress)+len(f.Saved)+len(f.Finished) == 0 {
		return nil, nil, wait
	}
	return f, logs, 0
}

// addAttempts moves messages of attempts to f until it is full, and reports whether none are left.
func (tbl *attemptTable) addAttempts(f *link.ToServer, now time.Duration) (complete bool) {
	budget := frameBudget
	for i, at := range tbl.dirty {
		if budget < at.size && budget < frameBudget || budget <= 0 || len(f.Finished) >= maxFrameReports {
			tbl.dirty = slices.Delete(tbl.dirty, 0, i)
			wake.Set(tbl.wake)
			return false
		}
		at.queued = false
		switch {
		case at.dropped:
		case at.report != nil:
			if at.reportSent || at.acked {
				continue
			}
			if at.progress != nil {
				f.Progress = append(f.Progress, *at.progress)
				at.progress = nil
			}
			at.addCheckpoint(f)
			f.Finished = append(f.Finished, *at.report)
			at.reportSent = true
			budget -= at.size
		default:
			budget -= tbl.addRunning(f, at, now)
		}
	}
	clear(tbl.dirty)
	tbl.dirty = tbl.dirty[:0]
	return true
}

// addRunning reports the state of a running attempt, and returns about how many bytes that takes. While other attempts run, a start is
// delayed for a moment: many tasks end before that, and then one message, and one commit of the server, reports both.
func (tbl *attemptTable) addRunning(f *link.ToServer, at *attempt, now time.Duration) int {
	if at.reportedState < reportedStarted && at.progress == nil && !at.checkpointDirty && tbl.executing > 1 && now < at.assignedAt+startDelay {
		tbl.deferUntil(at, at.assignedAt+startDelay)
		return 0
	}
	used := 0
	switch {
	case at.started != 0 && at.reportedState < reportedStarted:
		f.Started = append(f.Started, link.Started{Attempt: at.id, At: at.started})
		at.reportedState = reportedStarted
		used += 80
	case at.reportedState < reportedAccepted:
		f.Accepted = append(f.Accepted, at.id)
		at.reportedState = reportedAccepted
		used += 30
	}
	used += at.addCheckpoint(f)
	if at.progress == nil {
		return used
	}
	if due := (at.progressAt + progressInterval).Round(progressGrid); at.progressAt != 0 && now < due {
		tbl.deferUntil(at, due)
		return used
	}
	used += 100 + 40*len(at.progress.Metrics)
	if at.progress.Step != nil {
		used += 6 * len(*at.progress.Step)
	}
	for i := range at.progress.Artifacts {
		used += 256 + 6*len(at.progress.Artifacts[i].Name)
	}
	f.Progress = append(f.Progress, *at.progress)
	at.progress, at.progressAt = nil, now
	return used
}

// addCheckpoint reports the attempt's checkpoint, and returns about how many bytes that takes.
func (at *attempt) addCheckpoint(f *link.ToServer) int {
	if !at.checkpointDirty {
		return 0
	}
	f.Saved = append(f.Saved, link.Saved{Attempt: at.id, SHA256: at.checkpointHash})
	at.checkpointDirty = false
	return 120
}

// resendProgress sends the attempt's progress again in a new session: the server may have lost it.
func (at *attempt) resendProgress() {
	if at.mergedProgress == nil {
		return
	}
	at.progress = progress.Merge(nil, at.mergedProgress, maxResentMetrics)
	if at.report != nil {
		at.progress.Artifacts = nil // the report has them
	}
}

// deferUntil queues at when due comes.
func (tbl *attemptTable) deferUntil(at *attempt, due time.Duration) {
	at.deferredUntil = due
	if len(tbl.deferred) == 0 || due < tbl.deferredDue {
		tbl.deferredDue = due
	}
	if !at.deferred {
		at.deferred = true
		tbl.deferred = append(tbl.deferred, at)
	}
}

// queueDue queues the deferred attempts that are due.
func (tbl *attemptTable) queueDue(now time.Duration) {
	if len(tbl.deferred) == 0 || now < tbl.deferredDue {
		return
	}
	tbl.deferredDue = now + time.Hour
	tbl.deferred = slices.DeleteFunc(tbl.deferred, func(at *attempt) bool {
		if at.running() && now < at.deferredUntil {
			tbl.deferredDue = min(tbl.deferredDue, at.deferredUntil)
			return false
		}
		at.deferred = false
		if at.running() {
			tbl.queue(at)
		}
		return true
	})
}

// nextDue returns how long it is until a deferred attempt is due.
func (tbl *attemptTable) nextDue(now time.Duration) time.Duration {
	if len(tbl.deferred) == 0 {
		return time.Hour
	}
	return max(tbl.deferredDue-now, 0)
}

// addRenew adds the heartbeat. A report that was sent in this session, this frame included, is not listed as held: the server has ended
// that attempt by then.
func (tbl *attemptTable) addRenew(f *link.ToServer, load *muster.Load, now time.Duration) {
	f.Renew = &link.Renew{Load: load, Held: tbl.ids(func(at *attempt) bool {
		return !at.dropped && !at.acked && !at.reportSent
	})}
	if tbl.pingSentAt == 0 { // one at a time: a pong does not name its ping
		f.Ping, tbl.pingSentAt = true, now
	}
	tbl.findGrace()
	tbl.lastHeartbeat = now
	tbl.nextHeartbeat = now + tbl.heartbeatInterval()
	if tbl.inflight > 0 && now-tbl.lastLogAck > logAckTimeout {
		tbl.rewindLogs()
	}
}

// heartbeatInterval returns the time between heartbeats.
func (tbl *attemptTable) heartbeatInterval() time.Duration {
	return max(minHeartbeat, min(tbl.heartbeat, tbl.minGrace/4))
}

// minHeartbeat is the minimum time between heartbeats, however short a grace is.
const minHeartbeat = 100 * time.Millisecond

// queueGoodbye ends the session after everything else is sent. It returns false if there is no session.
func (tbl *attemptTable) queueGoodbye() bool {
	tbl.mu.Lock()
	defer tbl.mu.Unlock()
	tbl.goodbyeQueued = true
	wake.Set(tbl.wake)
	return tbl.connected
}
