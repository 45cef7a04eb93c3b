package bridge

import (
	"cmp"
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/backoff"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/wake"
)

// follow submits, monitors and reports one job. It returns when that is done or ctx ends.
func (b *Bridge) follow(ctx context.Context, j *job) {
	log := b.cfg.Log.With(slog.String("job", j.ID))
	var end *FinalReport
	for ctx.Err() == nil {
		r := b.snapshot(j)
		if r.isClosed() {
			return
		}
		var err error
		switch r.State {
		case stateAccepted:
			err = b.submit(ctx, j)
		case stateSubmitted:
			err = b.monitor(ctx, j)
		default:
			if end == nil {
				end, err = b.buildFinalReport(ctx, &r)
			}
			if err == nil {
				err = b.sendFinalReport(ctx, j, *end, log)
			}
		}
		if err != nil && ctx.Err() == nil {
			log.Warn("foreign job delayed, retrying", slog.String("state", b.snapshot(j).State), slog.Any("error", err))
			b.cfg.Metrics.Retried(cmp.Or(steps[r.State], "report"))
			b.waitRetry(ctx, j)
		}
	}
}

// steps has the names of the steps of jobs by their states, for Metrics.Retried; that of the other states is report.
var steps = map[string]string{stateAccepted: "submit", stateSubmitted: "follow"} //nolint:gochecknoglobals // a constant table

const maxRetry = time.Minute // between two tries

// waitRetry waits after a failure, longer after each in a row.
func (b *Bridge) waitRetry(ctx context.Context, j *job) {
	b.mu.Lock()
	n := j.failures
	j.failures++
	b.mu.Unlock()
	b.backoff(ctx, n)
}

// backoff waits after failure n, counted from 0, and returns false if ctx ended.
func (b *Bridge) backoff(ctx context.Context, n int) bool {
	d := min(b.cfg.RetryDelay<<min(n, 10), maxRetry)
	return backoff.Sleep(ctx, d/2+rand.N(d/2+1)) == nil //nolint:gosec // jitter
}

func (b *Bridge) snapshot(j *job) record {
	b.mu.Lock()
	defer b.mu.Unlock()
	return j.record
}

// update changes a record on disk and then in memory. Only the follower of a job calls it, or its log forwarder in place of the
// follower.
func (b *Bridge) update(j *job, apply func(r *record)) error {
	r := b.snapshot(j)
	state := r.State
	apply(&r)
	if r.State != state {
		r.At = muster.NewTime(time.Now())
	}
	if r.isClosed() {
		r.Spec, r.Meta = nil, nil
	}
	if err := b.outbox.put(&r); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	j.record, j.failures = r, 0
	if r.Job != 0 {
		b.byMusterJob[r.Job] = j
	}
	if r.isClosed() {
		delete(b.jobs, r.ID)
		b.cfg.Metrics.Pending(-1)
		b.cfg.Metrics.Reported(r.State == stateReported)
		delete(b.byMusterJob, r.Job)
		b.closed[r.ID] = r.At.Std()
		if len(b.closed) > maxClosedJobs+closedSlack {
			wake.Set(b.pruneNeeded)
		}
	}
	return nil
}

// submit submits the job to Muster. A job that Muster refuses ends as failed.
func (b *Bridge) submit(ctx context.Context, j *job) error {
	r := b.snapshot(j)
	submitted, err := b.cfg.Client.Submit(ctx, r.Spec, client.SubmitOptions{IdempotencyKey: b.idempotencyKey(r.ID)})
	switch {
	case err == nil:
		return b.update(j, func(r *record) { r.State, r.Job, r.Spec = stateSubmitted, submitted.ID, nil })
	case slices.Contains(permanentErrors, muster.CodeOf(err)), muster.CodeOf(err) == muster.InvalidSpec, muster.CodeOf(err) == muster.TooLarge:
		return b.update(j, func(r *record) { r.State, r.Refused, r.Spec = stateEnded, err.Error(), nil })
	default:
		return err
	}
}

// monitor reports progress and log until the job has ended.
func (b *Bridge) monitor(ctx context.Context, j *job) error {
	logs := b.newLogForwarder(j)
	defer logs.stop()
	r := b.snapshot(j)
	for {
		current, tasks, err := b.fetchJob(ctx, r.Job)
		if err != nil && muster.CodeOf(err) == muster.NotFound {
			logs.stop()
			return b.update(j, func(r *record) { r.State, r.Refused = stateEnded, removedMessage })
		}
		if err != nil {
			return err
		}
		if len(tasks) > 0 && tasks[0].Attempt > 0 {
			logs.start(ctx)
		}
		if current.State.Final() {
			logs.drain(ctx)
			logs.stop()
			return b.update(j, func(r *record) { r.State = stateEnded })
		}
		logs.reportMu.Lock()
		if err := b.reporter.Progress(ctx, r.job(), current, tasks); err != nil {
			b.cfg.Log.Debug("progress not accepted", slog.String("job", r.ID), slog.Any("error", err))
		}
		logs.reportMu.Unlock()
		if err := wake.Wait(ctx, j.wake, b.cfg.ProgressInterval); err != nil {
			return err
		}
	}
}

const removedMessage = "the job was removed from the Muster server before it was reported"

func (b *Bridge) fetchJob(ctx context.Context, id muster.JobID) (muster.Job, []muster.Task, error) {
	current, err := b.cfg.Client.Job(ctx, id)
	if err != nil {
		return current, nil, err
	}
	var tasks []muster.Task
	for t, err := range b.cfg.Client.Tasks(ctx, id, client.TaskQuery{}) {
		if err != nil {
			return current, nil, err
		}
		if tasks = append(tasks, t); len(tasks) == MaxReportedTasks {
			break
		}
	}
	return current, tasks, nil
}

func (b *Bridge) buildFinalReport(ctx context.Context, r *record) (*FinalReport, error) {
	end := &FinalReport{State: muster.JobFailed, rejection: r.Refused, client: b.cfg.Client}
	if r.Refused != "" {
		return end, nil
	}
	job, tasks, err := b.fetchJob(ctx, r.Job)
	switch {
	case err == nil:
		end.State, end.Job, end.Tasks = job.State, job, tasks
	case muster.CodeOf(err) == muster.NotFound:
		end.rejection = removedMessage
	default:
		return nil, err
	}
	return end, nil
}

// permanentErrors lists the codes by which a server permanently refuses a report or a job.
var permanentErrors = []muster.Code{muster.Conflict, muster.NotFound, muster.Invalid, muster.Forbidden} //nolint:gochecknoglobals // a constant list

// sendFinalReport sends the final report, unless a FinishChecker finds that the foreign server has it.
func (b *Bridge) sendFinalReport(ctx context.Context, j *job, end FinalReport, log *slog.Logger) error {
	r := b.snapshot(j)
	if r.State == stateSending {
		if f, ok := b.reporter.(FinishChecker); ok {
			finished, err := f.Finished(ctx, r.job())
			if err != nil {
				return err
			}
			if finished {
				return b.update(j, func(r *record) { r.State = stateReported })
			}
		}
	} else if err := b.update(j, func(r *record) { r.State = stateSending }); err != nil {
		return err
	}
	err := b.reporter.Finish(ctx, r.job(), end)
	switch {
	case err == nil:
		return b.update(j, func(r *record) { r.State = stateReported })
	case slices.Contains(permanentErrors, muster.CodeOf(err)):
		log.Error("foreign server refused the final report", slog.Any("error", err))
		return b.update(j, func(r *record) { r.State, r.Rejected = stateRejected, err.Error() })
	default:
		return err
	}
}
