package agent

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/link"
)

// Logs is where the worker's own copies of the logs are (package tasklog).
type Logs interface {
	Size(ctx context.Context, a muster.AttemptID) (int64, error)
	Open(ctx context.Context, a muster.AttemptID, offset int64) (io.ReadCloser, error)
	RemoveAttempt(ctx context.Context, a muster.AttemptID) error
}

const (
	logWindow = 1 << 20               // bytes that are not acknowledged, over all attempts
	logFrame  = link.MaxLogs / 2      // bytes in one frame, so that a slow line still carries heartbeats
	logTurn   = 32 << 10              // bytes that an attempt gets at least before the next one has its turn
	logEvery  = 20 * time.Millisecond // between frames of log, so that lines gather
	logStall  = 30 * time.Second      // without an acknowledgement, then bytes are sent again
	logProbe  = 4 << 10               // bytes that are sent at once of a log that the server refused last
	maxPause  = time.Minute           // the longest pause after which a refused log is tried again
)

// logRange is a part of a local log to be read and sent.
type logRange struct {
	at     *attempt
	offset int64
	n      int64
	failed bool // the last try to read it
}

// sayLog notes that at has log bytes that were not sent. The lock is held.
func (r *roster) sayLog(at *attempt) {
	if at.logging || !r.connected || at.logSent >= at.logSize {
		return
	}
	at.logging = true
	r.logs = append(r.logs, at)
	token(r.wake)
}

// nextLogs picks what to send of the logs, in turns, within the window, and returns
// how long to wait for more unless the roster is woken. What is paused keeps its turn.
func (r *roster) nextLogs(now time.Duration) ([]logRange, time.Duration) {
	if len(r.logs) == 0 || r.inflight >= logWindow {
		return nil, time.Hour
	}
	if now < r.logAt {
		return nil, r.logAt - now
	}
	room := min(logWindow-r.inflight, logFrame)
	turn := max(logTurn, room/int64(len(r.logs)))
	wait := time.Hour
	var ranges []logRange
	for turns := len(r.logs); turns > 0 && room > 0; turns-- {
		at := r.logs[0]
		r.logs[0] = nil
		r.logs = r.logs[1:]
		if now < at.logHold && at.logSent < at.logSize {
			r.logs = append(r.logs, at)
			wait = min(wait, at.logHold-now)
			continue
		}
		at.logging = false
		n := min(at.logSize-at.logSent, turn, room)
		if at.logRefused {
			n = min(n, logProbe)
		}
		if n <= 0 {
			continue
		}
		ranges = append(ranges, logRange{at, at.logSent, n, at.logFailed != 0})
		at.logSent += n
		r.inflight += n
		room -= n
		if at.logRefused {
			at.logHold = now + logStall // or until the answer
		}
		r.sayLog(at)
	}
	if len(ranges) > 0 {
		if r.inflight == sum(ranges) {
			r.logMoved = now
		}
		r.logAt = now + logEvery
	}
	return ranges, wait
}

func sum(ranges []logRange) (n int64) {
	for _, l := range ranges {
		n += l.n
	}
	return n
}

// logAck takes up how much of a log the server has. Less than was acknowledged
// before means that it lost some: that is sent again. With a pause the server could
// not store the rest of what was sent: it is sent again after that time.
func (r *roster) logAck(ack link.LogAck) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := r.held[ack.Attempt]
	if at == nil {
		return
	}
	now := r.clock()
	size := min(ack.Size, at.logSize)
	switch {
	case ack.Pause > 0:
		r.resendLog(at, min(max(size, at.logAcked), at.logSent))
		at.logRefused, at.logHold = true, now+min(ack.Pause.Std(), maxPause)
	case size < at.logAcked || size > at.logSent:
		r.resendLog(at, size)
	default:
		if at.logRefused && size > at.logAcked {
			at.logRefused, at.logHold = false, 0
		}
		r.inflight -= size - at.logAcked
		at.logAcked = size
	}
	r.logMoved = now
	r.sayLog(at)
	r.settle(at)
	token(r.wake) // there is room in the window
}

// resendLog takes the log to be acknowledged up to size and sends the rest again.
func (r *roster) resendLog(at *attempt, size int64) {
	r.inflight -= at.logSent - at.logAcked
	at.logSent, at.logAcked = size, size
}

// rewindLogs sends everything again that was not acknowledged.
func (r *roster) rewindLogs() {
	r.inflight, r.logs, r.logAt = 0, nil, 0
	for _, at := range r.held {
		at.logging, at.logSent = false, at.logAcked
		r.sayLog(at)
	}
}

// shipRest keeps an attempt that was given up until the server has all of its log.
// Its report is only kept on disk for that, over a restart of the worker: the server
// does not wait for it, and it claims no result.
func (r *roster) shipRest(at *attempt, report *muster.Report) {
	if r.held[at.id] != at {
		return
	}
	why := errLeaseEnded
	if report.Outcome == muster.AttemptLost && report.Message != "" {
		why = &run.Stopped{Reason: report.Reason, Message: report.Message}
	}
	*report = muster.Report{
		Attempt: at.id, Outcome: muster.AttemptLost, Reason: why.Reason, Message: why.Message,
		LogSize: report.LogSize, StartedAt: report.StartedAt, FinishedAt: report.FinishedAt,
	}
	at.complete(report)
	at.report, at.gone = report, false
	r.acknowledged(at, false)
	if at.logAcked < at.logSize {
		r.saveReport(at, r.clock())
		r.sayLog(at)
	}
	r.settle(at)
	if r.executes == 0 {
		token(r.idle)
	}
}

const (
	logRetry     = 100 * time.Millisecond // before a log that cannot be read is tried again, doubling
	logRetryMost = 10 * time.Second
	logGiveUp    = 2 * time.Minute // from the first failure, then the rest of the log is given up
)

// logUnread takes note that a range of a log could not be read from its byte n on.
// The cause may pass, such as too many open files: the range is read again after a
// growing pause. A log that is shorter than it was, or that stays unreadable, is given
// up.
func (r *roster) logUnread(l logRange, n int64, why error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at, now := l.at, r.clock()
	if r.held[at.id] != at || at.logSent != l.offset+l.n {
		return // it was removed, or is sent again anyway
	}
	if at.logFailed == 0 {
		at.logFailed = now
		r.log.Warn("the local copy of a log cannot be read; trying again", slog.String("attempt", at.id.String()), slog.Any("error", why))
	}
	if errors.Is(why, io.ErrUnexpectedEOF) || now-at.logFailed >= logGiveUp {
		r.log.Warn("the rest of a log is lost: the local copy cannot be read",
			slog.String("attempt", at.id.String()), slog.Any("error", why))
		r.resendLog(at, at.logSize)
		r.settle(at)
		return
	}
	r.inflight -= l.n - n
	at.logSent = l.offset + n
	at.logHold = now + min(max(logRetry, now-at.logFailed), logRetryMost)
	r.sayLog(at)
}

// logRead takes note that a log which could not be read can be read again.
func (r *roster) logRead(at *attempt) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at.logFailed = 0
}

// readLogs fills a frame with what was picked.
func (a *Agent) readLogs(ctx context.Context, f *link.ToServer, ranges []logRange) {
	for _, l := range ranges {
		data, err := a.readers.read(ctx, l)
		switch {
		case err == nil && l.failed:
			a.roster.logRead(l.at)
		case err != nil && ctx.Err() == nil:
			a.roster.logUnread(l, int64(len(data)), err)
		}
		if len(data) > 0 {
			f.Logs = append(f.Logs, link.LogChunk{Attempt: l.at.id, Offset: l.offset, Data: data})
			a.roster.logLeaves(int64(len(data)))
		}
	}
}

// logLeaves counts bytes that are sent.
func (r *roster) logLeaves(n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.traffic.LogSent += n
}
