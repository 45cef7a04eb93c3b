package api

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/rest"
	"github.com/muster-dev/muster/internal/api/streaming"
	"github.com/muster-dev/muster/internal/api/wire"
	"github.com/muster-dev/muster/internal/eventbus"
	"github.com/muster-dev/muster/internal/tasklog"
)

const (
	// lateLogTimeout is how long to wait for the rest of a finished attempt's log while
	// none of it arrives.
	lateLogTimeout = time.Minute
	// flushBytes is the number of bytes of output that are buffered before they are sent.
	flushBytes = 64 << 10
)

// eventFunc returns the event of a record; name is "" if there is none.
type eventFunc func(r tasklog.Record) (name string, data any)

// follower sends a task's log as events: all of one attempt and then, unless
// singleAttempt is set, of the next ones. After an attempt has ended it waits for the rest of
// the log, because reports may overtake logs.
type follower struct {
	*server
	pos           logPosition
	event         eventFunc
	follow        bool // wait for more
	singleAttempt bool // end with this attempt

	out        *streaming.EventWriter
	changes    *eventbus.Subscription
	lastGrowth time.Time // when the log last grew
	retried    int       // last attempt that announceRetry announced
}

func (f *follower) serve(w http.ResponseWriter, r *http.Request) error {
	ctx := r.Context()
	release, err := f.limits.AcquireStream(activeKeyOf(ctx))
	if err != nil {
		return rest.TooMany(err)
	}
	defer release()
	f.changes = f.Events.Subscribe("", eventbus.TaskScope(f.pos.task), nil)
	if f.out, err = streaming.NewEventWriter(w, r); err == nil {
		err = f.run(ctx)
	}
	if err != nil && ctx.Err() == nil {
		s := slog.String("task", f.pos.task.String())
		f.Log.DebugContext(ctx, "log stream broke off", s, slog.Any("error", err))
	}
	return nil // without an end event the client reconnects
}

func (f *follower) run(ctx context.Context) error {
	f.lastGrowth = time.Now()
	state, err := f.loadState(ctx)
	if err != nil {
		return err
	}
	if err := f.announce(); err != nil {
		return err
	}
	for {
		size, err := f.size(ctx)
		if err != nil {
			return err
		}
		if err := f.sendAvailable(ctx); err != nil {
			return err
		}
		if next := f.nextStep(state); next != nil {
			if next.end {
				return errors.Join(f.out.Send(wire.LogEnd, "", wire.LogBoundary{Attempt: f.pos.attempt, State: state.state, Truncated: next.truncated}), f.out.Flush())
			}
			if err := f.announceRetry(); err != nil {
				return err
			}
			f.pos.attempt, f.pos.offset, f.lastGrowth = f.pos.attempt+1, 0, time.Now()
			if err := f.announce(); err != nil {
				return err
			}
			if state, err = f.loadState(ctx); err != nil {
				return err
			}
			continue
		}
		if f.retryFollows(state) {
			if err := f.announceRetry(); err != nil {
				return err
			}
		}
		changed, err := f.wait(ctx, max(size, f.pos.offset))
		if err != nil {
			return err
		}
		if changed {
			if state, err = f.loadState(ctx); err != nil {
				return err
			}
		}
	}
}

// attemptState is the state of the followed attempt.
type attemptState struct {
	state       muster.TaskState // of the task
	lastAttempt int              // number of the task's last attempt
	ended       bool
	lost        bool
	size        int64 // of the whole log, once it has ended
}

func (f *follower) loadState(ctx context.Context) (attemptState, error) {
	task, err := f.Store.Task(ctx, f.pos.task)
	if err != nil {
		return attemptState{}, err
	}
	st := attemptState{state: task.State, lastAttempt: task.Attempt}
	if f.pos.attempt == 0 {
		st.ended = task.Attempt > 0 || task.State.Final()
		return st, nil
	}
	attempts, err := f.Store.Attempts(ctx, f.pos.task)
	if err != nil {
		return attemptState{}, err
	}
	if a, ok := findAttempt(attempts, f.pos.attempt); ok {
		st.size = a.LogSize
		st.ended, st.lost = attemptEnded(&a)
	}
	return st, nil
}

// step is what follows the output of an attempt: the end, or the next attempt.
type step struct{ end, truncated bool }

// nextStep returns what follows after all output so far was sent, or nil to wait for more.
func (f *follower) nextStep(st attemptState) *step {
	complete := st.ended && (f.pos.offset >= st.size || st.lost)
	timedOut := st.ended && !complete && time.Since(f.lastGrowth) >= lateLogTimeout
	done := complete || timedOut
	switch {
	case done && !f.singleAttempt && st.lastAttempt > f.pos.attempt:
		return &step{}
	case !f.follow, done && (f.singleAttempt || st.state.Final()):
		return &step{end: true, truncated: done && f.pos.offset < st.size}
	default:
		return nil
	}
}

// announce sends the event that begins an attempt.
func (f *follower) announce() error {
	if f.pos.attempt == 0 {
		return nil
	}
	return errors.Join(f.out.Send(wire.LogAttempt, f.pos.String(), wire.LogBoundary{Attempt: f.pos.attempt}), f.out.Flush())
}

// retryFollows reports whether all of an attempt was sent and another one will follow, which may not have begun.
func (f *follower) retryFollows(st attemptState) bool {
	// The task was read before its attempts, and may have ended since then: only a queued task with this attempt waits for the next one.
	queued := st.state == muster.Queued && st.lastAttempt == f.pos.attempt
	return st.ended && queued && !f.singleAttempt && (f.pos.offset >= st.size || st.lost)
}

// announceRetry sends, once for each attempt, that it has ended and another one follows.
func (f *follower) announceRetry() error {
	if f.pos.attempt == f.retried {
		return nil
	}
	f.retried = f.pos.attempt
	return errors.Join(f.out.Send(wire.LogRetry, f.pos.String(), wire.LogBoundary{Attempt: f.pos.attempt}), f.out.Flush())
}

func (f *follower) size(ctx context.Context) (int64, error) {
	if f.pos.attempt == 0 {
		return 0, nil
	}
	return f.Logs.Size(ctx, f.pos.id())
}

// sendAvailable sends the output so far.
func (f *follower) sendAvailable(ctx context.Context) error {
	pending := 0
	err := f.records(ctx, f.pos, func(r tasklog.Record, after int64) error {
		f.pos.offset = after
		f.lastGrowth = time.Now()
		name, data := f.event(r)
		if name == "" {
			return f.out.SendKeepAlive(f.pos.String())
		}
		if err := f.out.Send(name, f.pos.String(), data); err != nil {
			return err
		}
		if pending += len(r.Data); pending < flushBytes {
			return nil
		}
		pending = 0
		return f.out.Flush()
	})
	return errors.Join(err, f.out.Flush())
}

// wait returns when the log is longer than size, when the task has changed, or when a keep-alive is
// due; changed is true in the last two cases.
func (f *follower) wait(ctx context.Context, size int64) (changed bool, err error) {
	waitCtx, cancel := context.WithDeadline(ctx, f.out.KeepAliveDue())
	defer cancel()
	var watcher sync.WaitGroup
	watcher.Go(func() {
		defer cancel()
		_, err := f.changes.Next(waitCtx)
		changed = err == nil
	})
	if f.pos.attempt == 0 {
		<-waitCtx.Done()
	} else {
		err = f.Logs.Wait(waitCtx, f.pos.id(), size)
	}
	waitErr := waitCtx.Err()
	cancel()
	watcher.Wait()
	switch {
	case ctx.Err() != nil:
		return false, ctx.Err()
	case errors.Is(waitErr, context.DeadlineExceeded):
		return true, f.out.SendKeepAlive(f.pos.String())
	case waitErr != nil:
		return changed, nil
	default:
		return changed, err
	}
}
