package engine

import (
	"context"
	"log/slog"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/link"
	"github.com/muster-dev/muster/internal/sched/effect"
)

// clearLogs sets logs aside that have the numbers of attempts which are about to be assigned: they are of attempts of
// a time that the server has lost, because an older copy of its database was restored. The numbers of jobs that are
// new since this process began were never used before.
func (e *Engine) clearLogs(ctx context.Context, sends []effect.Send) error {
	for _, send := range sends {
		as, ok := send.(effect.Assign)
		if !ok || as.Attempt.Task.Job >= e.first {
			continue
		}
		had, err := e.cfg.Logs.SetAside(ctx, as.Attempt)
		if err != nil {
			return err
		}
		if had {
			e.cfg.Log.Warn("the log of an attempt with the same number is set aside: it is of a time before a backup was restored",
				slog.String("attempt", as.Attempt.String()))
		}
	}
	return nil
}

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
