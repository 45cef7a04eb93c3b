package engine

import (
	"context"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/link"
	"github.com/muster-dev/muster/internal/sched"
	"github.com/muster-dev/muster/internal/store"
	"github.com/muster-dev/muster/internal/traceparent"
)

// callTimeout limits how long a caller waits for its reply.
const callTimeout = 30 * time.Second

// call posts a request and waits for its result. If ctx ends before the request is
// decided, nothing changes; after that the error is Undetermined.
func call[T any](ctx context.Context, e *Engine, barrier bool, decide func(*sched.State, muster.Time, *batch) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	type result struct {
		value T
		err   error
	}
	var zero, value T // value is the engine's until it is sent
	reply := make(chan result, 1)
	err := e.inbox.post(ctx, request{
		decide: func(st *sched.State, now muster.Time, b *batch) (err error) {
			if ctx.Err() != nil {
				return muster.Errorf(muster.Unavailable, "not done: the caller gave up: %w", ctx.Err())
			}
			value, err = decide(st, now, b)
			return err
		},
		done:    func(err error) { reply <- result{value, err} },
		barrier: barrier,
	})
	if err != nil {
		return zero, err
	}
	select {
	case r := <-reply:
		if r.err != nil {
			return zero, r.err
		}
		return r.value, nil
	case <-ctx.Done():
		return zero, muster.Errorf(muster.Undetermined, "timed out waiting for the server: the change may or may not have been made; check before you retry: %w", ctx.Err())
	}
}

// do is call without a value.
func (e *Engine) do(ctx context.Context, barrier bool, decide func(*sched.State, muster.Time, *batch) error) error {
	_, err := call(ctx, e, barrier, func(st *sched.State, now muster.Time, b *batch) (struct{}, error) {
		return struct{}{}, decide(st, now, b)
	})
	return err
}

// Ping returns an error if the engine does not respond before ctx ends. It returns nil also while the store fails: see Health.
func (e *Engine) Ping(ctx context.Context) error {
	err := e.do(ctx, false, func(*sched.State, muster.Time, *batch) error { return nil })
	if ctx.Err() != nil || muster.CodeOf(err) == muster.Undetermined {
		return err
	}
	return nil
}

// Submit accepts a valid, normalized spec and returns the new job's number, after the
// commit. With by.Key it is idempotent for by.Owner: the same key and digest return the
// same job, another digest is a Conflict.
func (e *Engine) Submit(ctx context.Context, spec *muster.Spec, by store.IdempotencyKey) (muster.JobID, error) {
	return e.submit(ctx, spec, by, submission{})
}

// SubmitRun is Submit for a run of a schedule, which is recorded with the new job in the same transaction.
func (e *Engine) SubmitRun(ctx context.Context, spec *muster.Spec, by store.IdempotencyKey, run store.ScheduleRun) (muster.JobID, error) {
	return e.submit(ctx, spec, by, submission{run: &run})
}

// submission is what a job has besides its spec.
type submission struct {
	run    *store.ScheduleRun                   // of a schedule; nil for none
	reused func() (map[int]sched.Reused, error) // returns what the job reuses, in the engine's goroutine; nil for nothing
}

func (e *Engine) submit(ctx context.Context, spec *muster.Spec, by store.IdempotencyKey, o submission) (muster.JobID, error) {
	askedAt := time.Now()
	return call(ctx, e, o.reused != nil, func(st *sched.State, now muster.Time, b *batch) (muster.JobID, error) {
		if by.Key != "" {
			known, ok, err := e.findIdempotent(ctx, now, by, b)
			if err != nil {
				return 0, err
			}
			if ok {
				if known.Digest != by.Digest {
					return 0, muster.Errorf(muster.Conflict, "the idempotency key %q was used for another request (job %d); use a new key", by.Key, known.Job)
				}
				return known.Job, nil
			}
		}
		id, uid := st.NextJob(), traceparent.NewUID(ctx)
		ev := sched.Submit{ID: id, UID: uid, Spec: spec, Owner: by.Owner}
		if o.reused != nil {
			var err error
			if ev.Reused, err = o.reused(); err != nil {
				return 0, err
			}
		}
		if err := st.Apply(now, ev); err != nil {
			return 0, err
		}
		b.submitted = append(b.submitted, sched.Submitted{Job: id, UID: uid, Spec: spec, At: askedAt})
		if by.Key != "" {
			by.Job, by.At = id, now
			b.keys = append(b.keys, by)
		}
		if o.run != nil {
			recorded := *o.run
			recorded.Job, recorded.Outcome, recorded.DecidedAt = id, store.RunStarted, now
			b.runs = append(b.runs, recorded)
		}
		return id, nil
	})
}

// findIdempotent looks up an idempotency key in this batch and in the store. It ignores
// expired ones.
func (e *Engine) findIdempotent(ctx context.Context, now muster.Time, by store.IdempotencyKey, b *batch) (store.IdempotencyKey, bool, error) {
	for _, k := range b.keys {
		if k.Owner == by.Owner && k.Key == by.Key {
			return k, true, nil
		}
	}
	k, ok, err := e.cfg.Store.FindIdempotencyKey(ctx, by.Owner, by.Key)
	return k, ok && k.At.Add(store.IdempotencyTTL) > now, err
}

// maxDeadline limits the timeout of a drain or a pause.
const maxDeadline = muster.Duration(365 * 24 * time.Hour)

// Steer pauses, resumes, drains, heals or removes a worker.
func (e *Engine) Steer(ctx context.Context, w muster.WorkerID, o muster.AdminRequest) error {
	if o.Timeout != nil && (*o.Timeout < 0 || *o.Timeout > maxDeadline) {
		return muster.Errorf(muster.Invalid, "invalid timeout %s: use a duration from 0s to %s", *o.Timeout, maxDeadline)
	}
	approved := false
	err := e.do(ctx, false, func(st *sched.State, now muster.Time, _ *batch) error {
		var until muster.Time
		if o.Timeout != nil {
			until = now.Add(*o.Timeout)
		}
		switch o.Action {
		case muster.ActionPause:
			return st.Apply(now, sched.Pause{Worker: w, On: true, Until: until})
		case muster.ActionResume:
			if err := st.Apply(now, sched.Pause{Worker: w}); err != nil {
				return err
			}
			return st.Apply(now, sched.Drain{Worker: w})
		case muster.ActionDrain:
			return st.Apply(now, sched.Drain{Worker: w, On: true, Until: until})
		case muster.ActionApprove:
			approved = st.Pending(w)
			return st.Apply(now, sched.Approve{Worker: w})
		case muster.ActionHeal:
			return st.Apply(now, sched.Heal{Worker: w, GPUs: o.GPUs})
		case muster.ActionRemove:
			return st.Apply(now, sched.Remove{Worker: w})
		default:
			return muster.Errorf(muster.Invalid, "unknown worker action %q: use approve, pause, resume, drain, heal or remove", o.Action)
		}
	})
	if err == nil && approved {
		if s := e.session(w); s != nil {
			s.post(&link.ToWorker{Approved: true})
		}
	}
	return err
}

// Explain says why a live task is in its state.
func (e *Engine) Explain(ctx context.Context, id muster.TaskID) (muster.Explanation, error) {
	return call(ctx, e, false, func(st *sched.State, now muster.Time, _ *batch) (muster.Explanation, error) {
		return st.Explain(now, id)
	})
}

// Plan says where the first task of each stage would run if spec were submitted now.
func (e *Engine) Plan(ctx context.Context, spec *muster.Spec) ([]muster.Explanation, error) {
	return call(ctx, e, false, func(st *sched.State, now muster.Time, _ *batch) ([]muster.Explanation, error) {
		return st.Plan(now, spec), nil
	})
}

// Workers lists all workers, including free resources and load, which are in memory only.
// Callers share the list and must not change it.
func (e *Engine) Workers(ctx context.Context) ([]muster.Worker, error) {
	return call(ctx, e, false, func(st *sched.State, now muster.Time, b *batch) ([]muster.Worker, error) {
		if b.workers == nil {
			b.workers = st.Workers(now)
		}
		return b.workers, nil
	})
}

// Fleet returns all workers and the work of all projects. Callers share the snapshot and
// must not change it.
func (e *Engine) Fleet(ctx context.Context) (*sched.FleetSnapshot, error) {
	return call(ctx, e, false, func(st *sched.State, now muster.Time, b *batch) (*sched.FleetSnapshot, error) {
		if b.fleet == nil {
			p := st.FleetSnapshot(now)
			b.fleet = &p
		}
		return b.fleet, nil
	})
}

// Workload returns the work of one project.
func (e *Engine) Workload(ctx context.Context, project string) (sched.Workload, error) {
	return call(ctx, e, false, func(st *sched.State, now muster.Time, _ *batch) (sched.Workload, error) {
		return st.Workload(now, project), nil
	})
}

// Backlog returns how many requests wait for the engine.
func (e *Engine) Backlog() int {
	e.inbox.mu.Lock()
	defer e.inbox.mu.Unlock()
	return len(e.inbox.queue)
}

// Sessions returns how many workers are connected.
func (e *Engine) Sessions() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.sessions.byWorker)
}
