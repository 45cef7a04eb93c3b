package engine

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/link"
)

// logPause is how long a worker waits before it sends log bytes again that could
// not be stored.
const logPause = muster.Duration(5 * time.Second)

// appendLogs writes what a worker ships of its attempts' logs, and says how much
// of each is there. What it ships of others is dropped, and acknowledged all the
// same: repeating it would not help. Bytes that cannot be stored, for instance
// because the disk is full, are refused with a pause: they cost neither the session
// nor anything else in the frame, since the worker keeps them.
func (s *session) appendLogs(ctx context.Context, chunks []link.LogChunk) {
	acks := make([]link.LogAck, 0, len(chunks))
	for _, c := range chunks {
		ack := link.LogAck{Attempt: c.Attempt, Size: c.Offset + int64(len(c.Data))}
		mine, err := s.owns(ctx, c.Attempt)
		if err != nil {
			ack.Size = c.Offset
		} else if mine {
			ack.Size, err = s.engine.cfg.Logs.Append(ctx, c.Attempt, c.Offset, c.Data)
		}
		if ctx.Err() != nil {
			return // the session is over, and its successor begins with the sizes
		}
		if err != nil && muster.CodeOf(err) != muster.Conflict {
			ack.Pause = logPause
			s.engine.logTrouble.report(s.engine.cfg.Log, s.worker, err)
		}
		acks = append(acks, ack)
	}
	s.post(&link.ToWorker{LogAck: acks})
}

// trouble limits how often the server logs that task logs cannot be stored.
type trouble struct {
	mu   sync.Mutex
	last time.Time
}

// troubleEvery is the least time between two such messages.
const troubleEvery = time.Minute

func (t *trouble) report(log *slog.Logger, w muster.WorkerID, err error) {
	t.mu.Lock()
	now := time.Now()
	due := now.Sub(t.last) >= troubleEvery
	if due {
		t.last = now
	}
	t.mu.Unlock()
	if due {
		log.Error("task logs cannot be stored; workers keep them and send them again later",
			slog.String("worker", string(w)), slog.Any("error", err))
	}
}

// owned remembers which attempts are a worker's own.
type owned map[muster.AttemptID]bool

// maxOwned bounds an owned.
const maxOwned = 10_000

// owns reports whether an attempt was given to the session's worker, at whatever
// time. An offer is on disk before the worker hears it.
func (s *session) owns(ctx context.Context, a muster.AttemptID) (bool, error) {
	if mine, known := s.own[a]; known {
		return mine, nil
	}
	attempts, err := s.engine.cfg.Store.Attempts(ctx, a.Task)
	if err != nil && muster.CodeOf(err) != muster.NotFound {
		return false, err
	}
	mine := slices.ContainsFunc(attempts, func(b muster.Attempt) bool { return b.ID == a && b.Worker == s.worker })
	if !mine {
		s.engine.cfg.Log.Warn("a worker ships the log of an attempt that is not its own; it is dropped",
			slog.String("worker", string(s.worker)), slog.String("attempt", a.String()))
	}
	if len(s.own) >= maxOwned {
		clear(s.own)
	}
	s.own[a] = mine
	return mine, nil
}
