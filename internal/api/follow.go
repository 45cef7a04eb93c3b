package api

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/streaming"
	"github.com/muster-dev/muster/internal/api/wire"
	"github.com/muster-dev/muster/internal/notify"
	"github.com/muster-dev/muster/internal/tasklog"
)

const (
	// lateLog is how long the rest of an ended attempt's log is awaited while nothing
	// of it comes.
	lateLog = time.Minute
	// flushEvery is how many bytes of output are gathered before they are sent on.
	flushEvery = 64 << 10
)

// eventOf makes the event of a record; a record without one has no name.
type eventOf func(r tasklog.Record) (name string, data any)

// follower sends what a task's log holds as events: all of one attempt and, unless it was
// asked for that one alone, then of the next. What an attempt still lacks when it has
// ended is awaited, because reports may overtake logs.
type follower struct {
	*server
	place  logPlace
	event  eventOf
	follow bool // wait for more
	fixed  bool // end with this attempt

	out     *streaming.Events
	changes *notify.Subscription
	moved   time.Time // when the log last grew
}

func (f *follower) serve(w http.ResponseWriter, r *http.Request) error {
	ctx := r.Context()
	leave, err := f.bounds.Stream(grantOf(ctx))
	if err != nil {
		return tooManyError{err}
	}
	defer leave()
	f.changes = f.Events.Subscribe("", notify.TaskScope(f.place.task), nil)
	if f.out, err = streaming.OpenEvents(w, r); err == nil {
		err = f.run(ctx)
	}
	if err != nil && ctx.Err() == nil {
		s := slog.String("task", f.place.task.String())
		f.Log.DebugContext(ctx, "log stream broke off", s, slog.Any("error", err))
	}
	return nil // the client connects again if there was no end event
}

func (f *follower) run(ctx context.Context) error {
	f.moved = time.Now()
	turn, err := f.look(ctx)
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
		if err := f.pump(ctx); err != nil {
			return err
		}
		if next := f.after(turn); next != nil {
			if next.end {
				return errors.Join(f.out.Event(wire.LogEnd, "", wire.LogTurn{Attempt: f.place.attempt, State: turn.state, Truncated: next.truncated}), f.out.Flush())
			}
			f.place.attempt, f.place.offset, f.moved = f.place.attempt+1, 0, time.Now()
			if err := f.announce(); err != nil {
				return err
			}
			if turn, err = f.look(ctx); err != nil {
				return err
			}
			continue
		}
		changed, err := f.wait(ctx, max(size, f.place.offset))
		if err != nil {
			return err
		}
		if changed {
			if turn, err = f.look(ctx); err != nil {
				return err
			}
		}
	}
}

// standing is what is known of the attempt that is followed.
type standing struct {
	state muster.TaskState // of the task
	last  int              // number of the task's last attempt
	ended bool
	lost  bool
	size  int64 // of the whole log, once it has ended
}

func (f *follower) look(ctx context.Context) (standing, error) {
	task, err := f.Store.Task(ctx, f.place.task)
	if err != nil {
		return standing{}, err
	}
	st := standing{state: task.State, last: task.Attempt}
	if f.place.attempt == 0 {
		st.ended = task.Attempt > 0 || task.State.Final()
		return st, nil
	}
	attempts, err := f.Store.Attempts(ctx, f.place.task)
	if err != nil {
		return standing{}, err
	}
	for _, a := range attempts {
		if a.ID.N == f.place.attempt {
			st.ended, st.size = a.Outcome != muster.AttemptOpen, a.LogSize
			st.lost = a.Outcome == muster.AttemptLost || a.Outcome == muster.AttemptRejected
		}
	}
	return st, nil
}

// step is what follows on an attempt's output: the end, or the next attempt.
type step struct{ end, truncated bool }

// after says what follows when all output so far was sent, and nil if that is to wait.
func (f *follower) after(st standing) *step {
	whole := st.ended && (f.place.offset >= st.size || st.lost)
	late := st.ended && !whole && time.Since(f.moved) >= lateLog
	done := whole || late
	switch {
	case done && !f.fixed && st.last > f.place.attempt:
		return &step{}
	case !f.follow, done && (f.fixed || st.state.Final()):
		return &step{end: true, truncated: done && f.place.offset < st.size}
	default:
		return nil
	}
}

// announce says which attempt follows.
func (f *follower) announce() error {
	if f.place.attempt == 0 {
		return nil
	}
	return errors.Join(f.out.Event(wire.LogAttempt, f.place.String(), wire.LogTurn{Attempt: f.place.attempt}), f.out.Flush())
}

func (f *follower) size(ctx context.Context) (int64, error) {
	if f.place.attempt == 0 {
		return 0, nil
	}
	return f.Logs.Size(ctx, f.place.id())
}

// pump sends what is there.
func (f *follower) pump(ctx context.Context) error {
	waiting := 0
	err := f.records(ctx, f.place, func(r tasklog.Record, after int64) error {
		f.place.offset = after
		f.moved = time.Now()
		name, data := f.event(r)
		if name == "" {
			return f.out.Keep(f.place.String())
		}
		if err := f.out.Event(name, f.place.String(), data); err != nil {
			return err
		}
		if waiting += len(r.Data); waiting < flushEvery {
			return nil
		}
		waiting = 0
		return f.out.Flush()
	})
	return errors.Join(err, f.out.Flush())
}

// wait returns when the log is longer than size, when the task has changed, or, reporting that too, when a
// keep-alive is due.
func (f *follower) wait(ctx context.Context, size int64) (changed bool, err error) {
	waitCtx, cancel := context.WithDeadline(ctx, f.out.BeatBy())
	defer cancel()
	var watcher sync.WaitGroup
	watcher.Go(func() {
		defer cancel()
		_, err := f.changes.Next(waitCtx)
		changed = err == nil
	})
	if f.place.attempt == 0 {
		<-waitCtx.Done()
	} else {
		err = f.Logs.Wait(waitCtx, f.place.id(), size)
	}
	cut := waitCtx.Err()
	cancel()
	watcher.Wait()
	switch {
	case ctx.Err() != nil:
		return false, ctx.Err()
	case errors.Is(cut, context.DeadlineExceeded):
		return true, f.out.Keep(f.place.String())
	case cut != nil:
		return changed, nil
	default:
		return changed, err
	}
}
