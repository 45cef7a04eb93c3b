package engine

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/link"
	"github.com/muster-dev/muster/internal/sched/effect"
	"github.com/muster-dev/muster/internal/traceparent"
)

// logPause is how long a worker waits before it sends log bytes again that could
// not be stored.
const logPause = muster.Duration(5 * time.Second)

// setAsideLogs sets logs aside that have the numbers of attempts which are about to be assigned: they are of attempts of
// a time that the server has lost, because an older copy of its database was restored. The numbers of jobs that are
// new since this process began were never used before. A log that cannot be set aside costs the attempt its log, not
// the server its work.
func (e *Engine) setAsideLogs(ctx context.Context, cmds []effect.Command) {
	for _, cmd := range cmds {
		as, ok := cmd.(effect.Assign)
		if !ok || as.Attempt.Task.Job >= e.firstJob {
			continue
		}
		found, err := e.cfg.Logs.Archive(ctx, as.Attempt)
		switch {
		case err != nil:
			e.cfg.Log.Error("a log that has the number of a new attempt cannot be set aside", slog.String("attempt", as.Attempt.String()),
				slog.String("trace_id", traceparent.TraceText(as.UID)), slog.Any("error", err))
		case found:
			e.cfg.Log.Warn("the log of an attempt with the same number is set aside: it is of a time before a backup was restored",
				slog.String("attempt", as.Attempt.String()), slog.String("trace_id", traceparent.TraceText(as.UID)))
		}
	}
}

// appendLogs writes what a worker ships of its attempts' logs, and says how much
// of each is there. What it ships of others is dropped, and acknowledged all the
// same: repeating it would not help. Bytes that cannot be stored, for instance
// because the disk is full, are refused with a pause: they cost neither the session
// nor anything else in the frame, since the worker keeps them.
func (s *session) appendLogs(ctx context.Context, chunks []link.LogChunk) {
	acks := make([]link.LogAck, 0, len(chunks))
	for _, c := range chunks {
		ack := link.LogAck{Attempt: c.Attempt, Size: c.Offset + int64(len(c.Data))}
		owns, err := s.owns(ctx, c.Attempt)
		if err != nil {
			ack.Size = c.Offset
		} else if owns {
			ack.Size, err = s.engine.cfg.Logs.Append(ctx, c.Attempt, c.Offset, c.Data)
		}
		if ctx.Err() != nil {
			return // the session is over, and its successor begins with the sizes
		}
		if err != nil && muster.CodeOf(err) != muster.Conflict {
			ack.Pause = logPause
			s.engine.logErrors.report(s.engine.cfg.Log, s.worker, err)
		}
		acks = append(acks, ack)
	}
	s.post(&link.ToWorker{LogAck: acks})
}

// logThrottle limits how often the server logs that task logs cannot be stored.
type logThrottle struct {
	mu   sync.Mutex
	last time.Time
}

// logInterval is the least time between two such messages.
const logInterval = time.Minute

func (t *logThrottle) report(log *slog.Logger, w muster.WorkerID, err error) {
	t.mu.Lock()
	now := time.Now()
	due := now.Sub(t.last) >= logInterval
	if due {
		t.last = now
	}
	t.mu.Unlock()
	if due {
		log.Error("task logs cannot be stored; workers keep them and send them again later",
			slog.String("worker", string(w)), slog.Any("error", err))
	}
}
