package engine

import (
	"context"
	"log/slog"
	"slices"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/sched"
	"github.com/muster-dev/muster/internal/store"
)

var _ store.RetentionEngine = (*Engine)(nil)

// Limits of one request, which deletes some rows of each job.
const (
	maxRetired       = 16  // jobs
	maxRetiredStages = 200 // of all these jobs together, if there is more than one
)

// retention is what a batch changes of jobs besides their rows.
type retention struct {
	removed          []muster.JobID
	kept             []store.JobKept
	expiredLogs      []muster.JobID
	expiredArtifacts []muster.JobID
}

// changes reports whether the rows of a job were changed that a retry reads.
func (r *retention) changes(id muster.JobID) bool {
	return slices.Contains(r.removed, id) || slices.Contains(r.expiredLogs, id) || slices.Contains(r.expiredArtifacts, id)
}

// Now implements store.RetentionEngine.
func (e *Engine) Now() muster.Time { return e.now() }

// retired returns the first jobs of a list that may be retired now, and how many ids of the list it has decided about.
func (e *Engine) retired(ctx context.Context, st *sched.State, ids []muster.JobID) (jobs []store.RemovableJob, done int, err error) {
	ids = ids[:min(len(ids), maxRetired)]
	rows, err := e.cfg.Store.RemovableJobs(ctx, ids)
	if err != nil {
		return nil, 0, err
	}
	byID := make(map[muster.JobID]*store.RemovableJob, len(rows))
	for i := range rows {
		byID[rows[i].ID] = &rows[i]
	}
	stages := 0
	for _, id := range ids {
		job := byID[id]
		delete(byID, id) // an id may be repeated
		if job != nil && job.State.Final() && job.KeptAt == 0 && !st.Live(id) {
			if stages += job.Groups; stages > maxRetiredStages && len(jobs) > 0 {
				break
			}
			jobs = append(jobs, *job)
		}
		done++
	}
	return jobs, done, nil
}

// retire calls change for the first jobs of a list that may be retired, in a batch that begins with it. change reports whether it changed the job.
func (e *Engine) retire(ctx context.Context, ids []muster.JobID, change func(*sched.State, muster.Time, *batch, *store.RemovableJob) bool) ([]muster.JobID, int, error) {
	type result struct {
		retired []muster.JobID
		done    int
	}
	r, err := call(ctx, e, true, func(st *sched.State, now muster.Time, b *batch) (r result, err error) {
		jobs, done, err := e.retired(ctx, st, ids)
		for i := range jobs {
			if change(st, now, b, &jobs[i]) {
				r.retired = append(r.retired, jobs[i].ID)
			}
		}
		r.done = done
		return r, err
	})
	return r.retired, r.done, err
}

// RemoveJobs implements store.RetentionEngine.
func (e *Engine) RemoveJobs(ctx context.Context, ids []muster.JobID) (removed []muster.JobID, done int, err error) {
	return e.retire(ctx, ids, func(st *sched.State, now muster.Time, b *batch, job *store.RemovableJob) bool {
		if err := st.Apply(now, sched.JobRemoved{Job: job.ID, Project: job.Project, Counts: job.Counts}); err != nil {
			e.cfg.Log.Error("cannot remove a job", slog.String("job", job.ID.String()), slog.Any("error", err))
			return false
		}
		b.removed = append(b.removed, job.ID)
		return true
	})
}

// ExpireLogs implements store.RetentionEngine.
func (e *Engine) ExpireLogs(ctx context.Context, ids []muster.JobID) (expired []muster.JobID, done int, err error) {
	return e.retire(ctx, ids, func(_ *sched.State, _ muster.Time, b *batch, job *store.RemovableJob) bool {
		b.expiredLogs = append(b.expiredLogs, job.ID)
		return true
	})
}

// ExpireArtifacts implements store.RetentionEngine.
func (e *Engine) ExpireArtifacts(ctx context.Context, ids []muster.JobID) (expired []muster.JobID, done int, err error) {
	return e.retire(ctx, ids, func(_ *sched.State, _ muster.Time, b *batch, job *store.RemovableJob) bool {
		if job.ArtifactsRemovedAt != 0 {
			return false
		}
		b.expiredArtifacts = append(b.expiredArtifacts, job.ID)
		return true
	})
}

// removeExpiredLogs moves the logs of jobs away after the commit that records it, and before the next batch: a retry is decided
// later, so that its logs stay. Logs that remain after an error or a kill are found by the sweeper.
func (e *Engine) removeExpiredLogs(ctx context.Context, jobs []muster.JobID) {
	for _, id := range jobs {
		if err := e.cfg.Logs.Remove(ctx, id); err != nil {
			e.cfg.Log.Error("cannot remove the logs of a job", slog.String("job", id.String()), slog.Any("error", err))
		}
	}
}

// KeepJob exempts a job from retention and prune, or ends that. NotFound.
func (e *Engine) KeepJob(ctx context.Context, id muster.JobID, keep bool) error {
	return e.do(ctx, true, func(_ *sched.State, now muster.Time, b *batch) error {
		jobs, err := e.cfg.Store.RemovableJobs(ctx, []muster.JobID{id})
		switch {
		case err != nil:
			return err
		case len(jobs) == 0:
			return muster.Errorf(muster.NotFound, "there is no job %s", id)
		case keep == (jobs[0].KeptAt != 0):
			return nil
		case keep:
			b.kept = append(b.kept, store.JobKept{Job: id, At: now})
		default:
			b.kept = append(b.kept, store.JobKept{Job: id})
		}
		return nil
	})
}

// RemoveDeparted implements store.RetentionEngine.
func (e *Engine) RemoveDeparted(ctx context.Context, ids []muster.WorkerID) ([]muster.WorkerID, error) {
	return call(ctx, e, false, func(st *sched.State, now muster.Time, _ *batch) (removed []muster.WorkerID, err error) {
		for _, id := range ids {
			if st.Apply(now, sched.Remove{Worker: id, Departed: true}) == nil {
				removed = append(removed, id)
			}
		}
		return removed, nil
	})
}
