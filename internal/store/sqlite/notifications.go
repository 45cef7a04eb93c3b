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

// recordNotify records the notifications of a new job, and the end of a job that has some, before the job's row is written.
func (c *conn) recordNotify(j *muster.Job) error {
	if j.Spec != nil && len(j.Spec.Notify) > 0 {
		err := c.exec("INSERT INTO notify_job (job, long) VALUES (?, ?)", values(int64(j.ID), hasWaitingLong(j.Spec.Notify)))
		if err != nil {
			return err
		}
	}
	return c.recordEnd(j)
}

func hasWaitingLong(list []muster.Notify) bool {
	return slices.ContainsFunc(list, func(n muster.Notify) bool {
		_, waits := n.WaitThreshold()
		return waits
	})
}

// recordEnd records the end of a job that has notifications, before the job's row is written. A job that has ended does not wait.
func (c *conn) recordEnd(j *muster.Job) error {
	if j.FinishedAt == 0 {
		return nil
	}
	if err := c.putIdle(store.IdleJob{Job: j.ID}); err != nil {
		return err
	}
	return c.exec(`INSERT INTO job_end (job, state, at) SELECT ?1, ?2, ?3
		WHERE (EXISTS (SELECT 1 FROM notify_job WHERE job = ?1) OR EXISTS (SELECT 1 FROM notify_project WHERE project = ?4))
		AND NOT EXISTS (SELECT 1 FROM job WHERE id = ?1 AND finished_at = ?3)`,
		values(int64(j.ID), jobStateNumber(j.State), int64(j.FinishedAt), j.Project))
}

// ProjectNotify implements store.NotificationStore.
func (s *Store) ProjectNotify(ctx context.Context, project string) (list []muster.Notify, err error) {
	list, _, err = readFirst(ctx, s, "SELECT list FROM notify_project WHERE project = ?", values(project), jsonList[muster.Notify])
	return list, err
}

// SetProjectNotify implements store.NotificationStore.
func (s *Store) SetProjectNotify(ctx context.Context, project string, list []muster.Notify) error {
	return s.writeTx(ctx, func(c *conn) error {
		if len(list) == 0 {
			return c.exec("DELETE FROM notify_project WHERE project = ?", values(project))
		}
		return c.exec("REPLACE INTO notify_project (project, list, long) VALUES (?, ?, ?)", func(p *params) {
			p.text(project)
			p.json(list, false)
			p.bool(hasWaitingLong(list))
		})
	})
}

// JobEnds implements store.NotificationStore.
func (s *Store) JobEnds(ctx context.Context, limit int) ([]store.JobEnd, error) {
	return readList(ctx, s, "SELECT id, job, state, at FROM job_end ORDER BY id LIMIT ?", values(limit), func(r row, e *store.JobEnd) {
		number(r, &e.ID)
		number(r, &e.Job)
		index(r, &e.State, muster.JobStates)
		number(r, &e.At)
	})
}

// EnqueueDeliveries implements store.NotificationStore.
func (s *Store) EnqueueDeliveries(ctx context.Context, x store.EnqueueBatch) error {
	return s.writeTx(ctx, func(c *conn) error {
		if err := each(x.ProcessedEnds, func(id *int64) error { return c.exec("DELETE FROM job_end WHERE id = ?", values(*id)) }); err != nil {
			return err
		}
		if err := each(x.Idle, func(i *store.IdleJob) error { return c.putIdle(*i) }); err != nil {
			return err
		}
		return c.addDeliveries(x.Deliveries)
	})
}

func (c *conn) putIdle(i store.IdleJob) error {
	if i.Since == 0 {
		return c.exec("DELETE FROM job_idle WHERE job = ?", values(int64(i.Job)))
	}
	return c.exec("REPLACE INTO job_idle (job, since, told) SELECT id, ?2, ?3 FROM job WHERE id = ?1", values(int64(i.Job), int64(i.Since), int64(i.NotifiedWait)))
}

// addDeliveries adds deliveries. If a project has too many pending ones, it adds further ones as failed.
func (c *conn) addDeliveries(list []store.Delivery) error {
	pending := map[string]int{}
	for i := range list {
		d := list[i]
		n, counted := pending[d.Project]
		if !counted {
			var err error
			if n, _, err = first(c, "SELECT count(*) FROM delivery WHERE project = ? AND next_at IS NOT NULL", values(d.Project), number[int]); err != nil {
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
		if err := c.exec(addDelivery, func(p *params) { row{p: p}.delivery(&d) }); err != nil {
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

// trimDeliveries drops all but the last MaxFinalDeliveries final deliveries of a project.
func (c *conn) trimDeliveries(project string) error {
	return c.exec(`DELETE FROM delivery WHERE project = ?1 AND next_at IS NULL
		AND (finished_at, id) <= (SELECT finished_at, id FROM delivery WHERE project = ?1 AND next_at IS NULL
		ORDER BY finished_at DESC, id DESC LIMIT 1 OFFSET ?2)`, values(project, store.MaxFinalDeliveries))
}

// selectWatched looks up notify_job only for jobs that have not ended.
const selectWatched = "SELECT " + jobColumns + `, since, told FROM job LEFT JOIN job_idle ON job_idle.job = id
 WHERE state < 4 AND id > ?1 AND (EXISTS (SELECT 1 FROM notify_job WHERE job = id AND long = 1)
 OR EXISTS (SELECT 1 FROM notify_project WHERE notify_project.project = job.project AND long = 1)) ORDER BY id LIMIT ?2`

// WatchedJobs implements store.NotificationStore.
func (s *Store) WatchedJobs(ctx context.Context, after muster.JobID, limit int) ([]store.WatchedJob, error) {
	return readList(ctx, s, selectWatched, values(int64(after), limit), func(r row, w *store.WatchedJob) {
		r.job(&w.Job)
		w.Idle.Job = w.Job.ID
		number(r, &w.Idle.Since)
		number(r, &w.Idle.NotifiedWait)
	})
}
