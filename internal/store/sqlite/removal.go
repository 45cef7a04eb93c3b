package sqlite

import (
	"context"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/store"
)

var _ store.RemovalStore = (*Store)(nil)

// writeRetention writes what a batch changes of jobs that it has no rows of.
func (c *conn) writeRetention(b *store.Batch) error {
	if err := each(b.Kept, func(k *store.JobKept) error {
		return c.exec("UPDATE job SET kept_at = ? WHERE id = ?", func(p *params) {
			p.nullInt(int64(k.At))
			p.int(int64(k.Job))
		})
	}); err != nil {
		return err
	}
	expire := func(sql string, ids []muster.JobID) error {
		return each(ids, func(id *muster.JobID) error { return c.exec(sql, values(int64(b.At), int64(*id))) })
	}
	if err := expire("UPDATE job SET logs_removed_at = ?, log_bytes = 0 WHERE id = ?", b.ExpiredLogs); err != nil {
		return err
	}
	if err := expire("UPDATE job SET artifacts_removed_at = ? WHERE id = ?", b.ExpiredArtifacts); err != nil {
		return err
	}
	return each(b.RemovedJobs, func(id *muster.JobID) error { return c.removeJob(*id, b.At) })
}

// removals delete all rows of a job in tables that are small for each job, children before parents. All readers of the other tables look
// up the job.
var removals = []string{
	"DELETE FROM notify_job WHERE job = ?",
	"DELETE FROM job_end WHERE job = ?",
	"DELETE FROM job_idle WHERE job = ?",
	"DELETE FROM task_group_spec WHERE job = ?",
	"DELETE FROM task_group WHERE job = ?",
	"DELETE FROM job_spec WHERE job = ?",
	"DELETE FROM api_key WHERE job = ?",
	"DELETE FROM job WHERE id = ?",
}

func (c *conn) removeJob(id muster.JobID, at muster.Time) error {
	if err := c.exec("INSERT INTO job_removal (job, at) VALUES (?, ?)", values(int64(id), int64(at))); err != nil {
		return err
	}
	for _, sql := range removals {
		if err := c.exec(sql, values(int64(id))); err != nil {
			return err
		}
	}
	return nil
}

// writeTimed is writeTx, and returns how long the transaction took, without the wait for its turn.
func (s *Store) writeTimed(ctx context.Context, f func(*conn) error) (held time.Duration, err error) {
	var began time.Time
	err = s.writeTx(ctx, func(c *conn) error {
		began = time.Now()
		return f(c)
	})
	if !began.IsZero() {
		held = time.Since(began)
	}
	return held, err
}

// RemovedJobs implements store.RemovalStore.
func (s *Store) RemovedJobs(ctx context.Context, after muster.JobID, limit int) (ids []muster.JobID, oldest muster.Time, err error) {
	err = s.readTx(ctx, func(c *conn) error {
		if ids, err = list(c, "SELECT job FROM job_removal WHERE job > ? ORDER BY job LIMIT ?", values(int64(after), limit), number[muster.JobID]); err != nil {
			return err
		}
		oldest, _, err = first(c, "SELECT ifnull(min(at), 0) FROM job_removal", nil, number[muster.Time])
		return err
	})
	return ids, oldest, err
}

// DeleteRemoved implements store.RemovalStore.
func (s *Store) DeleteRemoved(ctx context.Context, ids []muster.JobID, limit int) (r store.Removed, err error) {
	r.Held, err = s.writeTimed(ctx, func(c *conn) error {
		for _, id := range ids {
			_, removed, err := first(c, "SELECT 1 FROM job_removal WHERE job = ?", values(int64(id)), number[int])
			if err != nil {
				return err
			}
			if removed {
				if err := c.deleteRows(id, limit, &r); err != nil {
					return err
				}
				if r.Rows >= limit { // there may be more rows
					return nil
				}
				if err := c.exec("DELETE FROM job_removal WHERE job = ?", values(int64(id))); err != nil {
					return err
				}
				r.Rows++
			}
			r.Jobs++
			if r.Rows >= limit {
				return nil
			}
		}
		return nil
	})
	if err != nil {
		return store.Removed{Held: r.Held}, err
	}
	return r, nil
}

// Each statement deletes the first rows of a job, so that whole pages become free.
const (
	deleteTasks    = "DELETE FROM task WHERE id IN (SELECT id FROM task WHERE id BETWEEN ? AND ? ORDER BY id LIMIT ?)"
	deleteAttempts = "DELETE FROM attempt WHERE (task, n) IN (SELECT task, n FROM attempt WHERE task BETWEEN ? AND ? ORDER BY task, n LIMIT ?)"
	deleteContents = "DELETE FROM content WHERE job = ?1 AND (cid, sha256) IN (SELECT cid, sha256 FROM content WHERE job = ?1 LIMIT ?2)"
	deleteLate     = "DELETE FROM late_report WHERE task BETWEEN ? AND ?"
)

// deleteRows deletes rows of a removed job until r.Rows reaches limit. Late reports are last: while a task or an attempt exists, one might be added
// by a Commit that does not look up the job.
func (c *conn) deleteRows(id muster.JobID, limit int, r *store.Removed) error {
	from, to := packTask(muster.TaskID{Job: id}), packTask(muster.TaskID{Job: id + 1})-1
	left := func() int { return limit - r.Rows }
	deletion := func(sql string, bind func(*params)) (n int, err error) {
		if left() <= 0 {
			return 0, nil
		}
		err = c.exec(sql, bind)
		n = int(c.db.Changes())
		r.Rows += n
		return n, err
	}
	tasks, err := deletion(deleteTasks, values(from, to, left()))
	r.Tasks += int64(tasks)
	if err == nil {
		_, err = deletion(deleteAttempts, values(from, to, left()))
	}
	if err == nil {
		_, err = deletion(deleteContents, values(int64(id), left()))
	}
	if err == nil {
		_, err = deletion(deleteLate, values(from, to))
	}
	return err
}

// DeleteLateReports implements store.RemovalStore.
func (s *Store) DeleteLateReports(ctx context.Context, ids []muster.AttemptID) (deleted int, held time.Duration, err error) {
	held, err = s.writeTimed(ctx, func(c *conn) error {
		return each(ids, func(a *muster.AttemptID) error {
			err := c.exec(`DELETE FROM late_report WHERE task = ?1 AND n = ?2
				AND NOT EXISTS (SELECT 1 FROM job WHERE id = ?3 AND (finished_at IS NULL OR kept_at IS NOT NULL))`,
				values(packTask(a.Task), a.N, int64(a.Task.Job)))
			deleted += int(c.db.Changes())
			return err
		})
	})
	return deleted, held, err
}

// DeleteKeys implements store.RemovalStore.
func (s *Store) DeleteKeys(ctx context.Context, expiredBefore muster.Time, workers []muster.WorkerID, limit int) (deleted int, held time.Duration, err error) {
	held, err = s.writeTimed(ctx, func(c *conn) error {
		err := c.exec(`DELETE FROM api_key WHERE id IN (SELECT id FROM api_key INDEXED BY api_key_expires
			WHERE expires_at IS NOT NULL AND expires_at < ? ORDER BY expires_at LIMIT ?)`, values(int64(expiredBefore), limit))
		if err != nil {
			return err
		}
		if deleted = int(c.db.Changes()); deleted >= limit {
			return nil
		}
		err = c.exec(`DELETE FROM api_key WHERE id IN (SELECT id FROM api_key WHERE worker IN (SELECT value FROM json_each(?))
			AND NOT EXISTS (SELECT 1 FROM worker WHERE worker.id = api_key.worker) LIMIT ?)`, func(p *params) {
			p.json(workers, false)
			p.int(int64(limit - deleted))
		})
		deleted += int(c.db.Changes())
		return err
	})
	return deleted, held, err
}

// DropGrants implements store.RemovalStore.
func (s *Store) DropGrants(ctx context.Context, sha256 []string, exists func(string) bool) (held time.Duration, err error) {
	return s.writeTimed(ctx, func(c *conn) error {
		return each(sha256, func(sum *string) error {
			if exists(*sum) {
				return nil
			}
			return c.exec("DELETE FROM blob_grant WHERE sha256 = ?", values(*sum))
		})
	})
}

// ofWorkers is the term of the index blob_grant_worker.
const ofWorkers = "holder >= 'w:' AND holder < 'w;'"

const selectLostGrants = "SELECT holder, sha256 FROM blob_grant INDEXED BY blob_grant_worker WHERE " + ofWorkers +
	" AND NOT EXISTS (SELECT 1 FROM worker WHERE id = substr(holder, 3)) LIMIT ?"

// DropWorkerGrants implements store.RemovalStore.
func (s *Store) DropWorkerGrants(ctx context.Context, limit int) (deleted int, held time.Duration, err error) {
	type grant struct{ holder, sha256 string }
	lost, err := readList(ctx, s, selectLostGrants, values(limit), func(r row, g *grant) {
		text(r, &g.holder)
		text(r, &g.sha256)
	})
	if len(lost) == 0 || err != nil {
		return 0, 0, err
	}
	held, err = s.writeTimed(ctx, func(c *conn) error {
		return each(lost, func(g *grant) error {
			err := c.exec("DELETE FROM blob_grant WHERE sha256 = ?1 AND holder = ?2 AND NOT EXISTS (SELECT 1 FROM worker WHERE id = substr(?2, 3))",
				values(g.sha256, g.holder))
			deleted += int(c.db.Changes())
			return err
		})
	})
	return deleted, held, err
}
