package agent

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"time"

	"github.com/muster-dev/muster"
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
)

// logRange is a part of a local log to be read and sent.
type logRange struct {
	at     *attempt
	offset int64
	n      int64
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

// nextLogs picks what to send of the logs, in turns, within the window. It
// returns nothing and how long to wait if it is too early.
func (r *roster) nextLogs(now time.Duration) ([]logRange, time.Duration) {
	if len(r.logs) == 0 || r.inflight >= logWindow {
		return nil, time.Hour
	}
	if now < r.logAt {
		return nil, r.logAt - now
	}
	room := min(logWindow-r.inflight, logFrame)
	turn := max(logTurn, room/int64(len(r.logs)))
	var ranges []logRange
	for turns := len(r.logs); turns > 0 && room > 0; turns-- {
		at := r.logs[0]
		r.logs[0] = nil
		r.logs = r.logs[1:]
		at.logging = false
		n := min(at.logSize-at.logSent, turn, room)
		if at.gone || n <= 0 {
			continue
		}
		ranges = append(ranges, logRange{at, at.logSent, n})
		at.logSent += n
		r.inflight += n
		room -= n
		r.sayLog(at)
	}
	if len(ranges) > 0 {
		if r.inflight == sum(ranges) {
			r.logMoved = now
		}
		r.logAt = now + logEvery
	}
	return ranges, time.Hour
}

func sum(ranges []logRange) (n int64) {
	for _, l := range ranges {
		n += l.n
	}
	return n
}

// logAck takes up how much of a log the server has. Less than was acknowledged
// before means that it lost some: that is sent again.
func (r *roster) logAck(ack link.LogAck) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := r.held[ack.Attempt]
	if at == nil || at.gone {
		return
	}
	size := min(ack.Size, at.logSize)
	if size < at.logAcked || size > at.logSent {
		r.inflight -= at.logSent - at.logAcked
		at.logSent, at.logAcked = size, size
	} else {
		r.inflight -= size - at.logAcked
		at.logAcked = size
	}
	r.logMoved = r.clock()
	r.sayLog(at)
	r.settle(at)
	token(r.wake) // there is room in the window
}

// rewindLogs sends everything again that was not acknowledged.
func (r *roster) rewindLogs() {
	r.inflight, r.logs, r.logAt = 0, nil, 0
	for _, at := range r.held {
		at.logging, at.logSent = false, at.logAcked
		if !at.gone {
			r.sayLog(at)
		}
	}
}

// abandonLog gives up the rest of a log that cannot be read.
func (r *roster) abandonLog(at *attempt, why error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.log.Warn("the rest of a log is lost: the local copy cannot be read",
		slog.String("attempt", at.id.String()), slog.Any("error", why))
	r.inflight -= at.logSent - at.logAcked
	at.logSent, at.logAcked = at.logSize, at.logSize
	r.settle(at)
}

// readLogs fills a frame with what was picked.
func (a *Agent) readLogs(ctx context.Context, f *link.ToServer, ranges []logRange) {
	for _, l := range ranges {
		data, err := a.readLog(ctx, l)
		if err != nil && ctx.Err() == nil {
			a.roster.abandonLog(l.at, err)
		}
		if len(data) > 0 {
			f.Logs = append(f.Logs, link.LogChunk{Attempt: l.at.id, Offset: l.offset, Data: data})
		}
	}
}

func (a *Agent) readLog(ctx context.Context, l logRange) ([]byte, error) {
	rc, err := a.cfg.Logs.Open(ctx, l.at.id, l.offset)
	if err != nil {
		return nil, err
	}
	defer rc.Close()
	data := make([]byte, l.n)
	n, err := io.ReadFull(rc, data)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return data[:n], err
}
