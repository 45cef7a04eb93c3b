package sqlite

import (
	"context"
	"encoding/json"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/store"
)

var (
	_ store.RetentionReader = (*Store)(nil)
	_ store.PolicyStore     = (*Store)(nil)
)

// jobRetention reads the columns that jobRead has after those of a job.
func (r row) jobRetention(v *muster.JobRetention) {
	optNumber(r, &v.KeptAt)
	optNumber(r, &v.LogsRemovedAt)
	optNumber(r, &v.ArtifactsRemovedAt)
}

// RetentionProjects implements store.RetentionReader.
func (s *Store) RetentionProjects(ctx context.Context) ([]string, error) {
	return readList(ctx, s, "SELECT project FROM project_total ORDER BY project", nil, text[string])
}

// The totals of a project are those of all its ended jobs, which only indexes are read for, without the few that are kept.
const (
	selectEndedTotal = "SELECT count(*) FROM job INDEXED BY job_ended WHERE project = ? AND finished_at IS NOT NULL"
	selectLogsTotal  = "SELECT count(*), ifnull(sum(log_bytes), 0) FROM job INDEXED BY job_logs WHERE project = ? AND finished_at IS NOT NULL AND log_bytes > 0"
	selectKeptTotal  = "SELECT count(*), ifnull(sum(log_bytes > 0), 0), ifnull(sum(log_bytes), 0) FROM job INDEXED BY job_kept WHERE project = ? AND kept_at IS NOT NULL AND finished_at IS NOT NULL"
	selectLateTotal  = "SELECT count(*) FROM late_report CROSS JOIN job ON job.id = task >> 24 WHERE project = ? AND finished_at IS NOT NULL AND kept_at IS NULL"
)

// EndedTotals implements store.RetentionReader.
func (s *Store) EndedTotals(ctx context.Context, project string) (store.EndedTotal, error) {
	return read(ctx, s, func(c *conn) (t store.EndedTotal, err error) {
		if t.Jobs, _, err = first(c, selectEndedTotal, values(project), number[int64]); err != nil {
			return t, err
		}
		logs := func(r row, t *store.EndedTotal) {
			number(r, &t.Logs)
			number(r, &t.LogBytes)
		}
		all, _, err := first(c, selectLogsTotal, values(project), logs)
		if err != nil {
			return t, err
		}
		kept, _, err := first(c, selectKeptTotal, values(project), func(r row, t *store.EndedTotal) {
			number(r, &t.Jobs)
			logs(r, t)
		})
		if err != nil {
			return t, err
		}
		t.Jobs -= kept.Jobs
		t.Logs = all.Logs - kept.Logs
		t.LogBytes = all.LogBytes - kept.LogBytes + muster.Size(t.Logs)*store.JobLogOverhead
		t.LateReports, _, err = first(c, selectLateTotal, values(project), number[int64])
		return t, err
	})
}

const (
	endedColumns       = "SELECT id, finished_at, log_bytes, n_succeeded + n_failed + n_timed_out + n_cancelled + n_skipped, kept_at IS NOT NULL FROM job INDEXED BY "
	endedAfter         = " project = ? AND (finished_at, id) > (?, ?) ORDER BY finished_at, id LIMIT ?"
	selectEndedJobs    = endedColumns + "job_ended WHERE finished_at IS NOT NULL AND" + endedAfter
	selectJobsWithLogs = endedColumns + "job_logs WHERE finished_at IS NOT NULL AND log_bytes > 0 AND" + endedAfter
)

// EndedJobs implements store.RetentionReader.
func (s *Store) EndedJobs(ctx context.Context, q store.EndedQuery) ([]store.EndedJob, error) {
	sql := selectEndedJobs
	if q.Logs {
		sql = selectJobsWithLogs
	}
	return readList(ctx, s, sql, values(q.Project, int64(q.After.EndedAt), int64(q.After.ID), q.Limit), func(r row, j *store.EndedJob) {
		number(r, &j.ID)
		number(r, &j.EndedAt)
		number(r, &j.LogBytes)
		if j.LogBytes > 0 {
			j.LogBytes += store.JobLogOverhead
		}
		number(r, &j.Tasks)
		r.bool(&j.Kept)
	})
}

const selectLate = `SELECT task, n, at, project FROM late_report INDEXED BY late_report_at CROSS JOIN job ON job.id = task >> 24
	WHERE (at, task, n) > (?, ?, ?) AND finished_at IS NOT NULL AND kept_at IS NULL ORDER BY at, task, n LIMIT ?`

// OldestLateReports implements store.RetentionReader.
func (s *Store) OldestLateReports(ctx context.Context, after store.LateEntry, limit int) ([]store.LateEntry, error) {
	return readList(ctx, s, selectLate, values(int64(after.At), packTask(after.Attempt.Task), after.Attempt.N, limit), func(r row, e *store.LateEntry) {
		r.taskID(&e.Attempt.Task)
		number(r, &e.Attempt.N)
		number(r, &e.At)
		text(r, &e.Project)
	})
}

// ExistingJobs implements store.RetentionReader.
func (s *Store) ExistingJobs(ctx context.Context, ids []muster.JobID) ([]store.RemovableJob, error) {
	return read(ctx, s, func(c *conn) ([]store.RemovableJob, error) { return c.removableJobs(ids) })
}

// RemovableJobs is ExistingJobs for the engine, which does not wait for readers.
func (s *Store) RemovableJobs(ctx context.Context, ids []muster.JobID) (jobs []store.RemovableJob, err error) {
	s.writeMu.Lock()
	defer s.writeMu.Unlock()
	err = s.readOnWriter(ctx, func(c *conn) error {
		jobs, err = c.removableJobs(ids)
		return err
	})
	return jobs, err
}

const selectRemovable = "SELECT id, project, state, " + countColumns + ", (SELECT count(*) FROM task_group WHERE task_group.job = job.id), finished_at, log_bytes, " +
	retentionColumns + " FROM job WHERE id IN (SELECT value FROM json_each(?)) ORDER BY id"

func (c *conn) removableJobs(ids []muster.JobID) ([]store.RemovableJob, error) {
	return list(c, selectRemovable, func(p *params) { p.json(ids, false) }, func(r row, j *store.RemovableJob) {
		number(r, &j.ID)
		text(r, &j.Project)
		index(r, &j.State, muster.JobStates)
		r.counts(&j.Counts)
		number(r, &j.Groups)
		optNumber(r, &j.EndedAt)
		number(r, &j.LogBytes)
		r.jobRetention(&j.JobRetention)
	})
}

// ProjectPolicies implements store.PolicyStore.
func (s *Store) ProjectPolicies(ctx context.Context) (map[string]json.RawMessage, error) {
	policies := map[string]json.RawMessage{}
	err := s.readTx(ctx, func(c *conn) error {
		return c.query("SELECT project, policy FROM project_retention", nil, func(cols *columns) bool {
			project := cols.text()
			policies[project] = cols.raw()
			return true
		})
	})
	return policies, err
}

// SetProjectPolicy implements store.PolicyStore.
func (s *Store) SetProjectPolicy(ctx context.Context, project string, policy json.RawMessage) error {
	return s.writeTx(ctx, func(c *conn) error {
		if policy == nil {
			return c.exec("DELETE FROM project_retention WHERE project = ?", values(project))
		}
		return c.exec("REPLACE INTO project_retention (project, policy) VALUES (?, ?)", func(p *params) {
			p.text(project)
			p.raw(policy)
		})
	})
}

// RetentionStart implements store.PolicyStore.
func (s *Store) RetentionStart(ctx context.Context) (start, lastPass muster.Time, err error) {
	_, _, err = readFirst(ctx, s, "SELECT at, last_pass_at FROM retention_start", nil, func(r row, _ *struct{}) {
		number(r, &start)
		optNumber(r, &lastPass)
	})
	return start, lastPass, err
}

// SetLastPass implements store.PolicyStore.
func (s *Store) SetLastPass(ctx context.Context, at muster.Time) error {
	return s.writeTx(ctx, func(c *conn) error { return c.exec("UPDATE retention_start SET last_pass_at = ?", values(int64(at))) })
}
