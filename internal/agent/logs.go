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

// Logs reads and removes the worker's local logs (package tasklog).
type Logs interface {
	Size(ctx context.Context, a muster.AttemptID) (int64, error)
	Open(ctx context.Context, a muster.AttemptID, offset int64) (io.ReadCloser, error)
	RemoveAttempt(ctx context.Context, a muster.AttemptID) error
}

const (
	logWindow        = 1 << 20               // bytes sent and not acknowledged, of all attempts
	maxFrameLogs     = link.MaxLogs / 2      // bytes in one frame, so that a slow connection still carries heartbeats
	logQuantum       = 32 << 10              // bytes that an attempt may send before it is the next one's turn, at least
	logFrameInterval = 20 * time.Millisecond // between frames with logs, to batch lines
	logAckTimeout    = 30 * time.Second      // without an acknowledgement bytes are sent again
	logProbeSize     = 4 << 10               // bytes sent at once of a log that the server could not store
	maxLogPause      = time.Minute           // before a log that the server could not store is sent again
)

// logRange is a part of a local log to read and send.
type logRange struct {
	at     *attempt
	offset int64
	n      int64
	failed bool // the last read failed
}

// queueLog queues at if it has unsent log bytes. The lock is held.
func (tbl *attemptTable) queueLog(at *attempt) {
	if at.logQueued || !tbl.connected || at.logSent >= at.logSize {
		return
	}
	at.logQueued = true
	tbl.logQueue = append(tbl.logQueue, at)
	trySend(tbl.wake)
}

// pickLogs picks the log bytes of the next frame, round-robin and within the window, and returns how long to wait for more unless the table
// is woken. A paused log keeps its place in the queue.
func (tbl *attemptTable) pickLogs(now time.Duration) ([]logRange, time.Duration) {
	if len(tbl.logQueue) == 0 || tbl.inflight >= logWindow {
		return nil, time.Hour
	}
	if now < tbl.nextLogFrame {
		return nil, tbl.nextLogFrame - now
	}
	budget := min(logWindow-tbl.inflight, maxFrameLogs)
	quantum := max(logQuantum, budget/int64(len(tbl.logQueue)))
	wait := time.Hour
	var ranges []logRange
	for visits := len(tbl.logQueue); visits > 0 && budget > 0; visits-- {
		at := tbl.logQueue[0]
		tbl.logQueue[0] = nil
		tbl.logQueue = tbl.logQueue[1:]
		if now < at.logRetryAt && at.logSent < at.logSize {
			tbl.logQueue = append(tbl.logQueue, at)
			wait = min(wait, at.logRetryAt-now)
			continue
		}
		at.logQueued = false
		n := min(at.logSize-at.logSent, quantum, budget)
		if at.logRejected {
			n = min(n, logProbeSize)
		}
		if n <= 0 {
			continue
		}
		ranges = append(ranges, logRange{at, at.logSent, n, at.logFailedSince != 0})
		at.logSent += n
		tbl.inflight += n
		budget -= n
		if at.logRejected {
			at.logRetryAt = now + logAckTimeout // or until the acknowledgement
		}
		tbl.queueLog(at)
	}
	if len(ranges) > 0 {
		if tbl.inflight == totalSize(ranges) {
			tbl.lastLogAck = now
		}
		tbl.nextLogFrame = now + logFrameInterval
	}
	return ranges, wait
}

func totalSize(ranges []logRange) (n int64) {
	for _, l := range ranges {
		n += l.n
	}
	return n
}

// logAck handles the size of a log on the server. A smaller size than before means that the server lost bytes, which are sent again. A pause
// means that the server could not store the rest, which is sent again after that time.
func (tbl *attemptTable) logAck(ack link.LogAck) {
	tbl.mu.Lock()
	defer tbl.mu.Unlock()
	at := tbl.held[ack.Attempt]
	if at == nil {
		return
	}
	now := tbl.clock()
	size := min(ack.Size, at.logSize)
	switch {
	case ack.Pause > 0:
		tbl.resendLog(at, min(max(size, at.logAcked), at.logSent))
		at.logRejected, at.logRetryAt = true, now+min(ack.Pause.Std(), maxLogPause)
	case size < at.logAcked || size > at.logSent:
		tbl.resendLog(at, size)
	default:
		if at.logRejected && size > at.logAcked {
			at.logRejected, at.logRetryAt = false, 0
		}
		tbl.inflight -= size - at.logAcked
		at.logAcked = size
	}
	tbl.lastLogAck = now
	tbl.queueLog(at)
	tbl.removeIfDone(at)
	trySend(tbl.wake) // the window has room
}

// resendLog takes the log as acknowledged up to size and sends the rest again.
func (tbl *attemptTable) resendLog(at *attempt, size int64) {
	tbl.inflight -= at.logSent - at.logAcked
	at.logSent, at.logAcked = size, size
}

// rewindLogs sends all unacknowledged bytes again.
func (tbl *attemptTable) rewindLogs() {
	tbl.inflight, tbl.logQueue, tbl.nextLogFrame = 0, nil, 0
	for _, at := range tbl.held {
		at.logQueued, at.logSent = false, at.logAcked
		tbl.queueLog(at)
	}
}

// shipRemainingLog keeps a dropped attempt until the server has its log. Its report is only stored for that, across a restart of the
// worker: the server does not wait for it, and it claims no result.
func (tbl *attemptTable) shipRemainingLog(at *attempt, report *muster.Report) {
	if tbl.held[at.id] != at {
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
	at.report, at.dropped = report, false
	tbl.markAcked(at, false)
	if at.logAcked < at.logSize {
		tbl.queueSave(at, tbl.clock())
		tbl.queueLog(at)
	}
	tbl.removeIfDone(at)
	if tbl.executing == 0 {
		trySend(tbl.idle)
	}
}

const (
	minLogRetry = 100 * time.Millisecond // before an unreadable log is read again, growing
	maxLogRetry = 10 * time.Second
	logGiveUp   = 2 * time.Minute // after the first failure the rest of the log is lost
)

// onLogReadError records that a range of a log could not be read from its byte n on. The cause may be temporary, such as too many open
// files: the range is read again after a growing pause. The rest of a log is lost if it became shorter or stays unreadable.
func (tbl *attemptTable) onLogReadError(l logRange, n int64, why error) {
	tbl.mu.Lock()
	defer tbl.mu.Unlock()
	at, now := l.at, tbl.clock()
	if tbl.held[at.id] != at || at.logSent != l.offset+l.n {
		return // removed, or rewound
	}
	if at.logFailedSince == 0 {
		at.logFailedSince = now
		tbl.log.Warn("local log unreadable, retrying", slog.String("attempt", at.id.String()), slog.Any("error", why))
	}
	if errors.Is(why, io.ErrUnexpectedEOF) || now-at.logFailedSince >= logGiveUp {
		tbl.log.Warn("local log unreadable, the rest of it is lost",
			slog.String("attempt", at.id.String()), slog.Any("error", why))
		tbl.resendLog(at, at.logSize)
		tbl.removeIfDone(at)
		return
	}
	tbl.inflight -= l.n - n
	at.logSent = l.offset + n
	at.logRetryAt = now + min(max(minLogRetry, now-at.logFailedSince), maxLogRetry)
	tbl.queueLog(at)
}

// onLogReadable records that an unreadable log can be read again.
func (tbl *attemptTable) onLogReadable(at *attempt) {
	tbl.mu.Lock()
	defer tbl.mu.Unlock()
	at.logFailedSince = 0
}

// readLogs reads the picked ranges into a frame.
func (a *Agent) readLogs(ctx context.Context, f *link.ToServer, ranges []logRange) {
	for _, l := range ranges {
		data, err := a.readers.read(ctx, l)
		switch {
		case err == nil && l.failed:
			a.table.onLogReadable(l.at)
		case err != nil && ctx.Err() == nil:
			a.table.onLogReadError(l, int64(len(data)), err)
		}
		if len(data) > 0 {
			f.Logs = append(f.Logs, link.LogChunk{Attempt: l.at.id, Offset: l.offset, Data: data})
			a.table.countLogSent(int64(len(data)))
		}
	}
}

// countLogSent counts sent log bytes.
func (tbl *attemptTable) countLogSent(n int64) {
	tbl.mu.Lock()
	defer tbl.mu.Unlock()
	tbl.traffic.LogSent += n
}
