package engine

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/link"
	"github.com/muster-dev/muster/internal/sched"
	"github.com/muster-dev/muster/internal/traceparent"
)

// logPause is how long a worker waits before it resends log bytes that could not be stored.
const logPause = muster.Duration(5 * time.Second)

// setAsideLogs archives existing logs of attempts that are about to be assigned: the numbers were used before an older
// backup of the database was restored. Jobs that are new since this process started cannot have such logs. An error costs
// the attempt its log, but does not stop the server.
func (e *Engine) setAsideLogs(ctx context.Context, cmds []sched.Command) {
	for _, cmd := range cmds {
		as, ok := cmd.(sched.Assign)
		if !ok || as.Attempt.Task.Job >= e.firstJob {
			continue
		}
		found, err := e.cfg.Logs.Archive(ctx, as.Attempt)
		switch {
		case err != nil:
			e.cfg.Log.Error("cannot archive an old log with the number of a new attempt", slog.String("attempt", as.Attempt.String()),
				slog.String("trace_id", traceparent.TraceText(as.UID)), slog.Any("error", err))
		case found:
			e.cfg.Log.Warn("archived an old log with the number of a new attempt: it is from before a backup was restored",
				slog.String("attempt", as.Attempt.String()), slog.String("trace_id", traceparent.TraceText(as.UID)))
		}
	}
}

// appendLogs stores log chunks and acknowledges the size of each log. Logs of attempts that
// are not the worker's are dropped and acknowledged too, since a resend would not help.
// Bytes that cannot be stored, for instance because the disk is full, are refused with a
// pause: the worker keeps them, and the session and the rest of the frame continue.
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
			return // the session is over, and the next one starts with the sizes
		}
		if err != nil && muster.CodeOf(err) != muster.Conflict {
			ack.Pause = logPause
			s.engine.logErrors.report(s.engine.cfg.Log, s.worker, err)
		}
		acks = append(acks, ack)
	}
	s.post(&link.ToWorker{LogAck: acks})
}

// logThrottle limits how often the server logs that it cannot store task logs.
type logThrottle struct {
	mu   sync.Mutex
	last time.Time
}

// logInterval is the minimum time between two such messages.
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
		log.Error("cannot store task logs, workers keep and resend them",
			slog.String("worker", string(w)), slog.Any("error", err))
	}
}
