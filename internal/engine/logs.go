package engine

import (
	"context"
	"log/slog"
	"slices"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/link"
)

// appendLogs writes what a worker ships of its attempts' logs, and says how much
// of each is there. What it ships of others is dropped, and acknowledged all the
// same: repeating it would not help.
func (s *session) appendLogs(ctx context.Context, chunks []link.LogChunk) error {
	acks := make([]link.LogAck, 0, len(chunks))
	for _, c := range chunks {
		mine, err := s.owns(ctx, c.Attempt)
		if err != nil {
			return err
		}
		size := c.Offset + int64(len(c.Data))
		if mine {
			size, err = s.engine.cfg.Logs.Append(ctx, c.Attempt, c.Offset, c.Data)
		}
		if err != nil && muster.CodeOf(err) != muster.Conflict {
			return err
		}
		acks = append(acks, link.LogAck{Attempt: c.Attempt, Size: size})
	}
	s.post(&link.ToWorker{LogAck: acks})
	return nil
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
