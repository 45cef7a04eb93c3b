package bridge

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/client"
)

// follow brings one job from acceptance to its final report. It returns when that is done or ctx ends.
func (b *Bridge) follow(ctx context.Context, at *job) {
	log := b.cfg.Log.With(slog.String("job", at.ID))
	var end *Ending
	for ctx.Err() == nil {
		r := b.read(at)
		if r.closed() {
			return
		}
		var err error
		switch r.State {
		case stateAccepted:
			err = b.submit(ctx, at)
		case stateSubmitted:
			err = b.accompany(ctx, at)
		default:
			if end == nil {
				end, err = b.ending(ctx, &r)
			}
			if err == nil {
				err = b.report(ctx, at, *end, log)
			}
		}
		if err != nil && ctx.Err() == nil {
			log.Warn("a job of the foreign server waits; trying again", slog.String("state", b.read(at).State), slog.Any("error", err))
			b.cfg.Metrics.Retried(step(r.State))
			b.pause(ctx, at)
		}
	}
}

// step names what is done with a job in a state.
func step(state string) string {
	switch state {
	case stateAccepted:
		return "submit"
	case stateSubmitted:
		return "follow"
	default:
		return "report"
	}
}

// maxRetry bounds the pauses between two tries.
const maxRetry = time.Minute

// pause waits after a failure, longer each time.
func (b *Bridge) pause(ctx context.Context, at *job) {
	b.mu.Lock()
	n := at.failures
	at.failures++
	b.mu.Unlock()
	b.backOff(ctx, n)
}

// backOff waits after the failure n, from 0, and returns false if ctx ended.
func (b *Bridge) backOff(ctx context.Context, n int) bool {
	d := min(b.cfg.Retry<<min(n, 10), maxRetry)
	return sleep(ctx, d/2+rand.N(d/2+1)) //nolint:gosec // spread, not a secret
}

func (b *Bridge) read(at *job) record {
	b.mu.Lock()
	defer b.mu.Unlock()
	return at.record
}

// change stores a changed record and then shows it. Only the follower of a job changes it, and who brings its log while
// the follower does not.
func (b *Bridge) change(at *job, do func(r *record)) error {
	r := b.read(at)
	state := r.State
	do(&r)
	if r.State != state {
		r.At = muster.NewTime(time.Now())
	}
	if r.closed() {
		r.Spec, r.Meta = nil, nil
	}
	if err := b.outbox.put(&r); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	at.record, at.failures = r, 0
	if r.Job != 0 {
		b.byMuster[r.Job] = at
	}
	if r.closed() {
		delete(b.jobs, r.ID)
		b.cfg.Metrics.Pending(-1)
		b.cfg.Metrics.Reported(r.State == stateReported)
		delete(b.byMuster, r.Job)
		b.closed[r.ID] = r.At.Std()
		if len(b.closed) > maxClosed+slackClosed {
			token(b.overfull)
		}
	}
	return nil
}

// submit makes the job one of Muster. What Muster refuses ends as a failure.
func (b *Bridge) submit(ctx context.Context, at *job) error {
	r := b.read(at)
	made, err := b.cfg.Client.Submit(ctx, r.Spec, client.SubmitOptions{IdempotencyKey: b.idempotencyKey(r.ID)})
	switch muster.CodeOf(err) {
	case muster.Invalid, muster.InvalidSpec, muster.Forbidden, muster.NotFound, muster.TooLarge, muster.Conflict:
		if err != nil {
			return b.change(at, func(r *record) { r.State, r.Refused, r.Spec = stateEnded, err.Error(), nil })
		}
	default:
	}
	if err != nil {
		return err
	}
	return b.change(at, func(r *record) { r.State, r.Job, r.Spec = stateSubmitted, made.ID, nil })
}

// accompany passes progress and log on until the job has ended.
func (b *Bridge) accompany(ctx context.Context, at *job) error {
	logs := b.newLogs(at)
	defer logs.stop()
	r := b.read(at)
	for {
		now, tasks, err := b.look(ctx, r.Job)
		if err != nil && muster.CodeOf(err) == muster.NotFound {
			logs.stop()
			return b.change(at, func(r *record) { r.State, r.Refused = stateEnded, removed })
		}
		if err != nil {
			return err
		}
		if len(tasks) > 0 && tasks[0].Attempt > 0 {
			logs.start(ctx)
		}
		if now.State.Final() {
			logs.drain(ctx)
			logs.stop()
			return b.change(at, func(r *record) { r.State = stateEnded })
		}
		logs.turn(func() {
			if err := b.port.Progress(ctx, r.job(), now, tasks); err != nil {
				b.cfg.Log.Debug("progress was not taken", slog.String("job", r.ID), slog.Any("error", err))
			}
		})
		if !b.await(ctx, at) {
			return ctx.Err()
		}
	}
}

// removed is why a job failed that was deleted.
const removed = "the job was removed from the Muster server before it was reported"

// await returns when the job's state changed, and when its next progress is due. It returns false if ctx ended.
func (b *Bridge) await(ctx context.Context, at *job) bool {
	t := time.NewTimer(b.cfg.Interval)
	defer t.Stop()
	select {
	case <-at.wake:
		return true
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// look reads a job and its first tasks.
func (b *Bridge) look(ctx context.Context, id muster.JobID) (muster.Job, []muster.Task, error) {
	now, err := b.cfg.Client.Job(ctx, id)
	if err != nil {
		return now, nil, err
	}
	var tasks []muster.Task
	for t, err := range b.cfg.Client.Tasks(ctx, id, client.TaskQuery{}) {
		if err != nil {
			return now, nil, err
		}
		if tasks = append(tasks, t); len(tasks) == MaxTasks {
			break
		}
	}
	return now, tasks, nil
}

// ending gathers what the final report says.
func (b *Bridge) ending(ctx context.Context, r *record) (*Ending, error) {
	if r.Refused != "" {
		return &Ending{State: muster.JobFailed, refused: r.Refused, client: b.cfg.Client}, nil
	}
	now, tasks, err := b.look(ctx, r.Job)
	if err != nil && muster.CodeOf(err) == muster.NotFound {
		return &Ending{State: muster.JobFailed, refused: removed, client: b.cfg.Client}, nil
	}
	if err != nil {
		return nil, err
	}
	return &Ending{State: now.State, Job: now, Tasks: tasks, client: b.cfg.Client}, nil
}

// final lists the codes of what a foreign server will never take.
var final = []muster.Code{muster.Conflict, muster.NotFound, muster.Invalid, muster.Forbidden} //nolint:gochecknoglobals // a constant list

// report brings the final report to the foreign server.
func (b *Bridge) report(ctx context.Context, at *job, end Ending, log *slog.Logger) error {
	r := b.read(at)
	if r.State == stateSending {
		if f, ok := b.port.(Finisher); ok {
			done, err := f.Finished(ctx, r.job())
			if err != nil {
				return err
			}
			if done {
				return b.change(at, func(r *record) { r.State = stateReported })
			}
		}
	} else if err := b.change(at, func(r *record) { r.State = stateSending }); err != nil {
		return err
	}
	err := b.port.Finish(ctx, r.job(), end)
	switch {
	case err == nil:
		return b.change(at, func(r *record) { r.State = stateReported })
	case slices.Contains(final, muster.CodeOf(err)):
		log.Error("the foreign server refuses the final report for good", slog.Any("error", err))
		return b.change(at, func(r *record) { r.State, r.Rejected = stateRejected, err.Error() })
	default:
		return err
	}
}
