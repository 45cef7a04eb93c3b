package engine

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/link"
	"github.com/muster-dev/muster/internal/sched"
	"github.com/muster-dev/muster/internal/tasklog"
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
		chunk := &tasklog.Chunk{Offset: c.Offset, Data: c.Data, Segment: c.Segment, Kept: c.Kept, To: c.To}
		ack := link.LogAck{Attempt: c.Attempt, Size: chunk.End()}
		owns, err := s.owns(ctx, c.Attempt)
		if err != nil {
			ack.Size = c.Offset
		} else if owns {
			ack.Size, err = s.engine.cfg.Logs.AppendChunk(ctx, c.Attempt, chunk, s.owned.logLimit(c.Attempt))
		}
		if ctx.Err() != nil {
			return // the session is over, and the next one starts with the sizes
		}
		if err != nil && muster.CodeOf(err) != muster.Conflict {
			ack.Pause = logPause
			s.engine.reportLogError(s.worker, err)
		}
		acks = append(acks, ack)
	}
	s.post(&link.ToWorker{LogAck: acks})
}

// logInterval is the minimum time between two messages that task logs cannot be stored.
const logInterval = time.Minute

func (e *Engine) reportLogError(w muster.WorkerID, err error) {
	e.logErrors.Do(func() {
		e.cfg.Log.Error("cannot store task logs, workers keep and resend them", slog.String("worker", string(w)), slog.Any("error", err))
	})
}

// ownedAttempts caches which attempts a session's worker was assigned. It does not cache misses: an attempt may be assigned to
// the worker later.
type ownedAttempts struct {
	mu  sync.Mutex
	ids map[muster.AttemptID]muster.Size // and the log_cap of their jobs; 0 if it is not known

	// misses limits the lookups in the store of attempts that are not the worker's. Only the goroutine that calls
	// Handle waits for it, and so only the worker that sends such logs.
	misses *rate.Limiter
	warned muster.AttemptID // the last one that was not the worker's
}

const (
	maxOwned  = 10_000                // cached attempts
	missEvery = 10 * time.Millisecond // rate of lookups of attempts that are not the worker's
	missBurst = 1_000                 // such lookups without delay
)

func newOwnedAttempts() *ownedAttempts {
	return &ownedAttempts{ids: map[muster.AttemptID]muster.Size{}, misses: rate.NewLimiter(rate.Every(missEvery), missBurst)}
}

func (o *ownedAttempts) add(a muster.AttemptID, logCap muster.Size) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.ids) >= maxOwned {
		clear(o.ids) // an lru.Cache costs three times as much for each assignment; forgotten attempts are looked up in the store
	}
	o.ids[a] = logCap
}

// logSlack is what a log may have besides its output: samples, points and messages of Muster.
const logSlack = 256 << 20

// logLimit returns the maximum number of bytes that are stored of an attempt's log. Only a faulty worker sends more.
func (o *ownedAttempts) logLimit(a muster.AttemptID) int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return int64(cmp.Or(o.ids[a], muster.MaxLogCap)) + logSlack
}

func (o *ownedAttempts) has(a muster.AttemptID) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, ok := o.ids[a]
	return ok
}

// owns reports whether an attempt was ever assigned to the session's worker. An assignment
// is committed, and added here, before it is sent.
func (s *session) owns(ctx context.Context, a muster.AttemptID) (bool, error) {
	if s.owned.has(a) {
		return true, nil
	}
	attempts, err := s.engine.cfg.Store.Attempts(ctx, a.Task)
	if err != nil && muster.CodeOf(err) != muster.NotFound {
		return false, err
	}
	if slices.ContainsFunc(attempts, func(b muster.Attempt) bool { return b.ID == a && b.Worker == s.worker }) {
		s.owned.add(a, 0)
		return true, nil
	}
	if s.owned.warned != a {
		s.owned.warned = a
		s.warn(ctx, a, "worker sent the log of an attempt that is not its own, dropping it")
	}
	if err := s.owned.misses.Wait(ctx); err != nil {
		return false, err
	}
	return false, nil
}
