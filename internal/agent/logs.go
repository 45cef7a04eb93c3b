package agent

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/link"
	"github.com/muster-dev/muster/internal/tasklog"
	"github.com/muster-dev/muster/internal/wake"
)

// Logs reads and removes the worker's local logs (package tasklog).
type Logs interface {
	Size(ctx context.Context, a muster.AttemptID) (int64, error)
	Chunks(ctx context.Context, a muster.AttemptID, offset int64) (*tasklog.ChunkReader, error)
	RemoveAttempt(ctx context.Context, a muster.AttemptID) error
}

const (
	logWindow        = 1 << 20               // bytes sent and not acknowledged, of all attempts
	maxFrameLogs     = link.MaxLogs / 2      // bytes in one frame, so that a slow connection still carries heartbeats
	logQuantum       = 32 << 10              // bytes that an attempt may send before it is the next one's turn, at least
	logFrameInterval = 20 * time.Millisecond // between frames with logs, to batch lines
	logDelay         = 10 * time.Millisecond // between small parts of one log, for each log that grows
	maxLogDelay      = time.Second
	smallLog         = 4 << 10          // bytes
	logAckTimeout    = 30 * time.Second // without an acknowledgement bytes are sent again
	logProbeSize     = 4 << 10          // bytes sent at once of a log that the server could not store
	maxLogPause      = time.Minute      // before a log that the server could not store is sent again
)

// logRange is a part of a local log to read and send.
type logRange struct {
	at     *attempt
	offset int64
	n      int64
}

// queueLog queues at if it has unsent log bytes. The lock is held.
func (tbl *attemptTable) queueLog(at *attempt) {
	if at.logQueued || !tbl.connected || at.logSent >= at.logSize {
		return
	}
	at.logQueued = true
	tbl.logQueue = append(tbl.logQueue, at)
	wake.Set(tbl.wake)
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
	tbl.growing.advance(now)
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
		if due := tbl.logDue(at); now < due {
			tbl.logQueue = append(tbl.logQueue, at)
			wait = min(wait, due-now)
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
		ranges = append(ranges, logRange{at, at.logSent, n})
		at.logSent += n
		tbl.growing.add(at, now)
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
	}
	tbl.nextLogFrame = now + logFrameInterval
	return ranges, wait
}

// growingLogs counts the logs that were sent in the current second or in the one before.
type growingLogs struct {
	second            time.Duration
	current, previous int
}

// advance begins a new second.
func (g *growingLogs) advance(now time.Duration) {
	switch second := now.Truncate(time.Second); second {
	case g.second:
	case g.second + time.Second:
		*g = growingLogs{second: second, previous: g.current}
	default:
		*g = growingLogs{second: second}
	}
}

// add notes that bytes of a log are sent.
func (g *growingLogs) add(at *attempt, now time.Duration) {
	if at.logSentAt < g.second {
		g.current++
	}
	at.logSentAt = now
}

func (g *growingLogs) count() int { return max(g.current, g.previous) }

// logDue returns when bytes of a log are sent. Where many tasks write a line now and then, such as points of progress, the lines of each wait
// for more of them, up to a second if 100 logs grow, and for those of others: the server stores fewer and larger parts, from fewer frames.
func (tbl *attemptTable) logDue(at *attempt) time.Duration {
	if at.logSentAt == 0 || at.report != nil || at.dropped || tbl.goodbyeQueued || at.logSize-at.logSent >= smallLog {
		return 0
	}
	delay := min(logDelay*time.Duration(tbl.growing.count()), maxLogDelay)
	if delay < progressGrid {
		return at.logSentAt + delay
	}
	return (at.logSentAt + delay).Round(progressGrid) // together with the progress
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
	wake.Set(tbl.wake) // the window has room
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
	why := run.ErrLeaseEnded
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
		wake.Set(tbl.idle)
	}
}

const (
	minLogRetry = 100 * time.Millisecond // before an unreadable log is read again, growing
	maxLogRetry = 10 * time.Second
	logGiveUp   = 2 * time.Minute // after the first failure the rest of the log is lost
)

// onLogRead records that the first n bytes of a range were read for the next frame; err is why the others were not. The cause may be
// temporary, such as too many open files: the range is read again after a growing pause. The rest of a log is lost if it became shorter or
// stays unreadable. n is more than the range if the log was dropped beyond its end; sent is the size of what was read.
func (tbl *attemptTable) onLogRead(l logRange, n, sent int64, err error) {
	tbl.mu.Lock()
	defer tbl.mu.Unlock()
	tbl.traffic.LogSent += sent
	at, now := l.at, tbl.clock()
	if err == nil {
		at.logFailedSince = 0
		if extra := n - l.n; extra > 0 && tbl.held[at.id] == at && at.logSent == l.offset+l.n {
			at.logSent += extra
			at.logSize = max(at.logSize, at.logSent)
			tbl.inflight += extra // until the server acknowledges the dropped part, nothing else is sent
		}
		return
	}
	if tbl.held[at.id] != at || at.logSent != l.offset+l.n {
		return // removed, or rewound
	}
	if at.logFailedSince == 0 {
		at.logFailedSince = now
		tbl.log.Warn("local log unreadable, retrying", slog.String("attempt", at.id.String()), slog.Any("error", err))
	}
	if errors.Is(err, io.ErrUnexpectedEOF) || now-at.logFailedSince >= logGiveUp {
		tbl.log.Warn("local log unreadable, the rest of it is lost", slog.String("attempt", at.id.String()), slog.Any("error", err))
		tbl.resendLog(at, at.logSize)
		tbl.removeIfDone(at)
		return
	}
	tbl.inflight -= l.n - n
	at.logSent = l.offset + n
	at.logRetryAt = now + min(max(minLogRetry, now-at.logFailedSince), maxLogRetry)
	tbl.queueLog(at)
}

// readLogs reads the picked ranges into a frame.
func (a *Agent) readLogs(ctx context.Context, f *link.ToServer, ranges []logRange) {
	for _, l := range ranges {
		chunks, err := a.readers.read(ctx, l)
		next, sent := l.offset, 0
		for i := range chunks {
			c := &chunks[i]
			f.Logs = append(f.Logs, link.LogChunk{Attempt: l.at.id, Offset: c.Offset, Data: c.Data, Segment: c.Segment, Kept: c.Kept, To: c.To})
			next, sent = c.End(), sent+len(c.Data)
		}
		if err == nil || ctx.Err() == nil { // else the session has ended: all is read again in the next one
			a.table.onLogRead(l, next-l.offset, int64(sent), err)
		}
	}
}

// maxLogReaders is the maximum number of local logs that are kept open between frames.
const maxLogReaders = 256

// logReaders reads local logs and keeps the most recently read ones open, since a log is usually read sequentially. Its methods may be
// called concurrently.
type logReaders struct {
	logs Logs

	mu   sync.Mutex
	open []*logReader // least recently used first
}

type logReader struct {
	id muster.AttemptID
	rc *tasklog.ChunkReader
}

// read returns a range in chunks. A part that was dropped counts as one byte or more, however long it is, so that the last chunk may end
// after the range. With an error read returns the chunks before it; the error is io.ErrUnexpectedEOF if the log is shorter.
func (c *logReaders) read(ctx context.Context, l logRange) (chunks []tasklog.Chunk, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.pop(l.at.id)
	if r != nil && r.rc.Offset() != l.offset {
		_ = r.rc.Close() // it was only read
		r = nil
	}
	if r == nil {
		rc, err := c.logs.Chunks(ctx, l.at.id, l.offset)
		if err != nil {
			return nil, err
		}
		r = &logReader{id: l.at.id, rc: rc}
	}
	for end := l.offset + l.n; r.rc.Offset() < end; {
		chunk, err := r.rc.Next(end - r.rc.Offset())
		if err != nil {
			_ = r.rc.Close() // it was only read
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return chunks, err
		}
		chunks = append(chunks, chunk)
	}
	if c.open = append(c.open, r); len(c.open) > maxLogReaders {
		_ = c.open[0].rc.Close() // it was only read
		c.open = slices.Delete(c.open, 0, 1)
	}
	return chunks, nil
}

// pop removes and returns the open reader of an attempt; nil if there is none.
func (c *logReaders) pop(id muster.AttemptID) *logReader {
	i := slices.IndexFunc(c.open, func(r *logReader) bool { return r.id == id })
	if i < 0 {
		return nil
	}
	r := c.open[i]
	c.open = slices.Delete(c.open, i, i+1)
	return r
}

// close closes the log of an attempt, so that its removal frees the space.
func (c *logReaders) close(id muster.AttemptID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.pop(id); r != nil {
		_ = r.rc.Close() // it was only read
	}
}

// closeAll closes all logs.
func (c *logReaders) closeAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.open {
		_ = r.rc.Close() // it was only read
	}
	c.open = nil
}
