package sqlite

import (
	"context"
	"slices"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/store"
)

var (
	_ store.NotificationStore = (*Store)(nil)
	_ store.DeliveryStore     = (*Store)(nil)
)

// recordNotify notes what of a job is to be notified, before its row is written.
func (c *conn) recordNotify(j *muster.Job) error {
	if err := c.recordNotifyJob(j); err != nil {
		return err
	}
	return c.recordEnd(j)
}

// recordNotifyJob notes that a new job has notifications.
func (c *conn) recordNotifyJob(j *muster.Job) error {
	if j.Spec == nil || len(j.Spec.Notify) == 0 {
		return nil
	}
	return c.exec("INSERT INTO notify_job (job, long) VALUES (?, ?)", func(p *params) {
		p.int(int64(j.ID))
		p.bool(hasWaitingLong(j.Spec.Notify))
	})
}

func hasWaitingLong(list []muster.Notify) bool {
	return slices.ContainsFunc(list, func(n muster.Notify) bool {
		_, waits := n.WaitThreshold()
		return waits
	})
}

// recordEnd notes the end of a job that has notifications, before the job's row says it. A job that has ended does not wait.
func (c *conn) recordEnd(j *muster.Job) error {
	if j.FinishedAt == 0 {
		return nil
	}
	if err := c.putIdle(store.IdleJob{Job: j.ID}); err != nil {
		return err
	}
	return c.exec(`INSERT INTO job_end (job, state, at) SELECT ?1, ?2, ?3
		WHERE (EXISTS (SELECT 1 FROM notify_job WHERE job = ?1) OR EXISTS (SELECT 1 FROM notify_project WHERE project = ?4))
		AND NOT EXISTS (SELECT 1 FROM job WHERE id = ?1 AND finished_at = ?3)`, func(p *params) {
		p.int(int64(j.ID))
		p.int(jobStateNumber(j.State))
		p.time(j.FinishedAt)
		p.text(j.Project)
	})
}

// ProjectNotify implements store.Notices.
func (s *Store) ProjectNotify(ctx context.Context, project string) (list []muster.Notify, err error) {
	err = s.readTx(ctx, func(c *conn) error {
		return c.query("SELECT list FROM notify_project WHERE project = ?", func(p *params) { p.text(project) }, func(cols *columns) bool {
			cols.json(&list)
			return true
		})
	})
	return list, err
}

// SetProjectNotify implements store.Notices.
func (s *Store) SetProjectNotify(ctx context.Context, project string, list []muster.Notify) error {
	return s.writeTx(ctx, func(c *conn) error {
		if len(list) == 0 {
			return c.exec("DELETE FROM notify_project WHERE project = ?", func(p *params) { p.text(project) })
		}
		return c.exec("REPLACE INTO notify_project (project, list, long) VALUES (?, ?, ?)", func(p *params) {
			p.text(project)
			p.json(list, false)
			p.bool(hasWaitingLong(list))
		})
	})
}

// JobEnds implements store.Notices.
func (s *Store) JobEnds(ctx context.Context, limit int) (ends []store.JobEnd, err error) {
	err = s.readTx(ctx, func(c *conn) error {
		return c.query("SELECT id, job, state, at FROM job_end ORDER BY id LIMIT ?", func(p *params) { p.int(int64(limit)) }, func(cols *columns) bool {
			ends = append(ends, store.JobEnd{ID: cols.int(), Job: muster.JobID(cols.int()), State: jobStateOf(cols.int()), At: cols.time()})
			return true
		})
	})
	return ends, err
}

// EnqueueDeliveries implements store.Notices.
func (s *Store) EnqueueDeliveries(ctx context.Context, x store.EnqueueBatch) error {
	return s.writeTx(ctx, func(c *conn) error {
		for _, id := range x.ProcessedEnds {
			if err := c.exec("DELETE FROM job_end WHERE id = ?", func(p *params) { p.int(id) }); err != nil {
				return err
			}
		}
		for _, i := range x.Idle {
			if err := c.putIdle(i); err != nil {
				return err
			}
		}
		return c.addDeliveries(x.Deliveries)
	})
}

func (c *conn) putIdle(i store.IdleJob) error {
	if i.Since == 0 {
		return c.exec("DELETE FROM job_idle WHERE job = ?", func(p *params) { p.int(int64(i.Job)) })
	}
	return c.exec("REPLACE INTO job_idle (job, since, told) VALUES (?, ?, ?)", func(p *params) {
		p.int(int64(i.Job))
		p.time(i.Since)
		p.int(int64(i.NotifiedWait))
	})
}

// addDeliveries adds deliveries, those of projects with too many pending ones as given up.
func (c *conn) addDeliveries(list []store.Delivery) error {
	pending := map[string]int{}
	for i := range list {
		d := list[i]
		n, counted := pending[d.Project]
		if !counted {
			err := c.query("SELECT count(*) FROM delivery WHERE project = ? AND next_at IS NOT NULL", func(p *params) { p.text(d.Project) }, func(cols *columns) bool {
				n = int(cols.int())
				return true
			})
			if err != nil {
				return err
			}
		}
		if d.NextAt != 0 && n >= store.MaxPendingDeliveries {
			d.NextAt, d.FinishedAt, d.Error = 0, d.CreatedAt, "not sent: too many notifications of this project are pending"
		}
		if d.NextAt != 0 {
			n++
		}
		pending[d.Project] = n
		if err := c.exec(addDelivery, func(p *params) { p.delivery(&d) }); err != nil {
			return err
		}
	}
	for project := range pending {
		if err := c.trimDeliveries(project); err != nil {
			return err
		}
	}
	return nil
}

// trimDeliveries drops what is more than is kept of a project.
func (c *conn) trimDeliveries(project string) error {
	return c.exec(`DELETE FROM delivery WHERE project = ?1 AND next_at IS NULL
		AND (finished_at, id) <= (SELECT finished_at, id FROM delivery WHERE project = ?1 AND next_at IS NULL
		ORDER BY finished_at DESC, id DESC LIMIT 1 OFFSET ?2)`, func(p *params) {
		p.text(project)
		p.int(store.MaxFinalDeliveries)
	})
}

// selectWatched has no job that ended: notify_job is not looked at for them.
const selectWatched = "SELECT " + jobColumns + `, since, told FROM job LEFT JOIN job_idle ON job_idle.job = id
 WHERE state < 4 AND id > ?1 AND (EXISTS (SELECT 1 FROM notify_job WHERE job = id AND long = 1)
 OR EXISTS (SELECT 1 FROM notify_project WHERE notify_project.project = job.project AND long = 1)) ORDER BY id LIMIT ?2`

// WatchedJobs implements store.Notices.
func (s *Store) WatchedJobs(ctx context.Context, after muster.JobID, limit int) (jobs []store.WatchedJob, err error) {
	err = s.readTx(ctx, func(c *conn) error {
		return c.query(selectWatched, func(p *params) {
			p.int(int64(after))
			p.int(int64(limit))
		}, func(cols *columns) bool {
			w := store.WatchedJob{Job: cols.job()}
			w.Idle = store.IdleJob{Job: w.Job.ID, Since: cols.time(), NotifiedWait: muster.Duration(cols.int())}
			jobs = append(jobs, w)
			return true
		})
	})
	return jobs, err
}
