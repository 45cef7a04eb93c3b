package sweeper

import (
	"context"
	"log/slog"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/blob"
	"github.com/muster-dev/muster/internal/store"
)

// remover is the action that deletes.
type remover struct {
	*Sweeper
	began muster.Time // of the pass
}

// expiredKeys is how long an API key is kept after it expired.
const expiredKeys = muster.Duration(30 * 24 * time.Hour)

func (r *remover) paced() bool              { return true }
func (r *remover) waiting() muster.Duration { return r.Engine.Now().Sub(r.began) }

// each calls change, which decides about at least one element, until all are decided about.
func (r *remover) each(ctx context.Context, ids []muster.JobID, change func(ids []muster.JobID) (done int, err error)) error {
	for len(ids) > 0 {
		err := r.batch(ctx, r.waiting(), func() (time.Duration, error) {
			return timed(func() error {
				done, err := change(ids)
				if err == nil && done <= 0 {
					err = muster.Errorf(muster.Internal, "the engine decided about none of %d jobs", len(ids))
				}
				ids = ids[max(done, 0):]
				return err
			})
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *remover) jobs(ctx context.Context, list []store.EndedJob) error {
	err := r.each(ctx, endedIDs(list), func(ids []muster.JobID) (int, error) {
		removed, done, err := r.Engine.RemoveJobs(ctx, ids)
		r.Observe(Deleted{Jobs: int64(len(removed))})
		return done, err
	})
	if err != nil {
		return err
	}
	return r.deleteRemoved(ctx)
}

func (r *remover) logs(ctx context.Context, list []store.EndedJob) error {
	return r.expireLogs(ctx, endedIDs(list))
}

func (r *remover) expireLogs(ctx context.Context, ids []muster.JobID) error {
	err := r.each(ctx, ids, func(ids []muster.JobID) (int, error) {
		expired, done, err := r.Engine.ExpireLogs(ctx, ids)
		r.Observe(Deleted{Logs: int64(len(expired))})
		return done, err
	})
	if err != nil {
		return err
	}
	return r.sweepLogs(ctx, r.waiting())
}

func endedIDs(list []store.EndedJob) []muster.JobID {
	ids := make([]muster.JobID, len(list))
	for i := range list {
		ids[i] = list[i].ID
	}
	return ids
}

func (r *remover) artifacts(ctx context.Context, list []jobFiles) error {
	ids := make([]muster.JobID, len(list))
	for i := range list {
		ids[i] = list[i].job
	}
	return r.each(ctx, ids, func(ids []muster.JobID) (int, error) {
		expired, done, err := r.Engine.ExpireArtifacts(ctx, ids)
		r.Observe(Deleted{Artifacts: int64(len(expired))})
		return done, err
	})
}

func (r *remover) lateReports(ctx context.Context, list []store.LateEntry) error {
	ids := make([]muster.AttemptID, len(list))
	for i := range list {
		ids[i] = list[i].Attempt
	}
	return r.batch(ctx, r.waiting(), func() (time.Duration, error) {
		deleted, held, err := r.Store.DeleteLateReports(ctx, ids)
		r.Observe(Deleted{LateReports: int64(deleted)})
		return held, err
	})
}

func (r *remover) workers(ctx context.Context, list []muster.Worker) error {
	ids := make([]muster.WorkerID, len(list))
	for i := range list {
		ids[i] = list[i].ID
	}
	err := r.batch(ctx, r.waiting(), func() (time.Duration, error) {
		return timed(func() (err error) {
			ids, err = r.Engine.RemoveDeparted(ctx, ids)
			r.Observe(Deleted{Workers: int64(len(ids))})
			return err
		})
	})
	if err != nil || len(ids) == 0 {
		return err
	}
	return r.keys(ctx, ids)
}

// keys deletes the keys of workers that were removed, and those that expired long ago.
func (r *remover) keys(ctx context.Context, workers []muster.WorkerID) error {
	return r.untilFew(ctx, func() (int, time.Duration, error) {
		return r.Store.DeleteKeys(ctx, r.Engine.Now().Add(-expiredKeys), workers, pageSize)
	})
}

// untilFew calls remove until it deletes less than a page.
func (r *remover) untilFew(ctx context.Context, remove func() (int, time.Duration, error)) error {
	for {
		var deleted int
		err := r.batch(ctx, r.waiting(), func() (held time.Duration, err error) {
			deleted, held, err = remove()
			return held, err
		})
		if err != nil || deleted < pageSize {
			return err
		}
	}
}

func (r *remover) uploads(ctx context.Context, list []blob.File, since cutoff) error {
	return r.batch(ctx, r.waiting(), func() (time.Duration, error) {
		return timed(func() error {
			for _, f := range list {
				size, removed, err := r.Blobs.RemoveUnused(ctx, f.SHA256, since.time)
				if removed {
					r.Observe(Deleted{Blobs: 1, BlobBytes: muster.Size(size)})
				}
				if err != nil {
					return err
				}
			}
			return nil
		})
	})
}

// deleteRemoved deletes the logs and then the rows of removed jobs.
func (s *Sweeper) deleteRemoved(ctx context.Context) error {
	for {
		ids, oldest, err := s.Store.RemovedJobs(ctx, 0, jobBatch)
		if err != nil || len(ids) == 0 {
			return err
		}
		waiting := s.Engine.Now().Sub(oldest)
		err = s.batch(ctx, waiting, func() (time.Duration, error) {
			return timed(func() error {
				for _, id := range ids {
					if err := s.Logs.Remove(ctx, id); err != nil {
						return err
					}
				}
				return nil
			})
		})
		if err != nil {
			return err
		}
		if err := s.sweepLogs(ctx, waiting); err != nil {
			return err
		}
		if err := s.deleteRows(ctx, ids, waiting); err != nil {
			return err
		}
	}
}

// deleteRows deletes the rows of removed jobs, whose logs were removed.
func (s *Sweeper) deleteRows(ctx context.Context, ids []muster.JobID, waiting muster.Duration) error {
	for len(ids) > 0 {
		err := s.batch(ctx, waiting, func() (time.Duration, error) {
			r, err := s.Store.DeleteRemoved(ctx, ids, rowBatch)
			if err == nil && r.Jobs == 0 && r.Rows == 0 {
				err = muster.Errorf(muster.Internal, "the rows of the removed job %s cannot be deleted", ids[0])
			}
			ids = ids[r.Jobs:]
			s.Observe(Deleted{Tasks: r.Tasks})
			return r.Held, err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// sweepLogs deletes the files of removed logs.
func (s *Sweeper) sweepLogs(ctx context.Context, waiting muster.Duration) error {
	for more := true; more; {
		err := s.batch(ctx, waiting, func() (time.Duration, error) {
			return timed(func() error {
				var freed muster.Size
				var err error
				freed, more, err = s.Logs.Sweep(fileBatch)
				s.Observe(Deleted{LogBytes: freed})
				if err != nil { // the next sweep retries, and rows need not wait for it
					s.Log.Warn("cannot delete removed logs, retrying", slog.Any("error", err))
				}
				return nil
			})
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// removeOrphans deletes directories of logs that belong to no job, such as of output that arrived after its job was removed, and those that
// a kill left behind after the logs expired.
func (s *Sweeper) removeOrphans(ctx context.Context) error {
	act := &remover{s, s.Engine.Now()}
	for after := muster.JobID(0); ; {
		start := time.Now()
		ids, err := s.Logs.Jobs(after, pageSize)
		if err != nil || len(ids) == 0 {
			return err
		}
		existing, err := s.Store.ExistingJobs(ctx, ids)
		if err != nil {
			return err
		}
		known := make(map[muster.JobID]bool, len(existing))
		var expired []muster.JobID
		for i := range existing {
			j := &existing[i]
			known[j.ID] = true
			if j.State.Final() && j.LogBytes == 0 && j.LogsRemovedAt > 0 && j.LogsRemovedAt >= j.EndedAt {
				expired = append(expired, j.ID)
			}
		}
		if err := s.removeLogs(ctx, ids, known, act.waiting()); err != nil {
			return err
		}
		if err := act.expireLogs(ctx, expired); err != nil {
			return err
		}
		if err := rest(ctx, true, start); err != nil {
			return err
		}
		after = ids[len(ids)-1]
	}
}

// orphanAge is how long logs of a job that does not exist are kept. The database may have lost the job (muster server --accept-loss).
const orphanAge = 30 * 24 * time.Hour

// removeLogs removes old logs of jobs that are not known.
func (s *Sweeper) removeLogs(ctx context.Context, ids []muster.JobID, known map[muster.JobID]bool, waiting muster.Duration) error {
	return s.batch(ctx, waiting, func() (time.Duration, error) {
		return timed(func() error {
			for _, id := range ids {
				if known[id] {
					continue
				}
				at, err := s.Logs.JobTime(id)
				if err != nil {
					return err
				}
				if s.Engine.Now().Sub(muster.NewTime(at)) <= muster.Duration(orphanAge) {
					continue
				}
				if err := s.Logs.Remove(ctx, id); err != nil {
					return err
				}
			}
			return nil
		})
	})
}
