package sqlite

import (
	"context"
	"errors"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/store"
	"github.com/ncruces/go-sqlite3"
)

// groupKey identifies a group.
type groupKey struct {
	job muster.JobID
	idx int
}

// Commit implements store.Writer.
func (s *Store) Commit(ctx context.Context, b *store.Batch) error {
	next := b.NextJob
	for i := range b.Jobs {
		next = max(next, b.Jobs[i].ID+1)
	}
	return s.writeTxNextJob(ctx, next, func(*conn) error {
		if err := s.writeBatch(b); err != nil {
			return err
		}
		s.cacheResolved(b)
		return nil
	})
}

// writeTx runs f in a writing transaction.
func (s *Store) writeTx(ctx context.Context, f func(*conn) error) error {
	return s.writeTxNextJob(ctx, 0, f)
}

// writeTxNextJob is writeTx, and makes next the least number of the next job.
func (s *Store) writeTxNextJob(ctx context.Context, next muster.JobID, f func(*conn) error) error {
	s.writeMu.Lock()
	defer s.writeMu.Unlock()
	if s.writer == nil {
		return errClosed()
	}
	if err := s.replaceBrokenWriter(ctx); err != nil {
		return err
	}
	err := s.writer.inTx(ctx, forWriting, func() error {
		if err := f(s.writer); err != nil {
			return err
		}
		return s.countCommit(next)
	})
	if err != nil {
		s.clearCache() // it may have what was rolled back
		return s.wrapError(ctx, "write", err)
	}
	s.writeMark()
	return nil
}

// replaceBrokenWriter replaces the writer's connection if it is unusable. The caller holds s.writeMu.
func (s *Store) replaceBrokenWriter(ctx context.Context) error {
	if !s.writer.broken {
		return nil
	}
	_ = s.writer.close() // this also rolls back
	opened, err := openConn(ctx, s.path, writerPragmas)
	if err != nil {
		return s.wrapError(ctx, "open", err)
	}
	s.writer = opened
	return nil
}

// clearCache drops the cached knowledge about rows on disk, which is optional.
func (s *Store) clearCache() {
	clear(s.resolvedSpecs)
	clear(s.openTasks)
}

// writeBatch writes parents before children, for the foreign keys.
func (s *Store) writeBatch(b *store.Batch) error {
	w := s.writer
	if err := each(b.Jobs, w.writeJob); err != nil {
		return err
	}
	if err := each(b.IdempotencyKeys, s.writeIdempotency); err != nil {
		return err
	}
	if err := each(b.ScheduleRuns, w.writeRun); err != nil {
		return err
	}
	if err := each(b.Groups, s.writeGroup); err != nil {
		return err
	}
	if err := each(b.Tasks, s.writeTask); err != nil {
		return err
	}
	if err := each(b.Attempts, w.writeAttempt); err != nil {
		return err
	}
	if err := each(b.LateReports, w.putLate); err != nil {
		return err
	}
	err := each(b.Workers, func(v *muster.Worker) error { return w.exec(putWorker, func(p *params) { row{p: p}.worker(v) }) })
	if err != nil {
		return err
	}
	err = each(b.RemovedWorkers, func(id *muster.WorkerID) error { return w.exec("DELETE FROM worker WHERE id = ?", values(string(*id))) })
	if err != nil {
		return err
	}
	if err := each(b.Totals, w.writeTotal); err != nil {
		return err
	}
	if err := w.writeCache(b); err != nil {
		return err
	}
	return w.writeRetention(b)
}

func (c *conn) writeTotal(t *muster.ProjectTotal) error {
	if t.Counts == (muster.Counts{}) {
		return c.exec("DELETE FROM project_total WHERE project = ?", values(t.Project))
	}
	return c.exec(putTotal, func(p *params) {
		text(row{p: p}, &t.Project)
		row{p: p}.counts(&t.Counts)
	})
}

// each calls f for each element of a list, until one fails.
func each[T any](list []T, f func(*T) error) error {
	for i := range list {
		if err := f(&list[i]); err != nil {
			return err
		}
	}
	return nil
}

func (c *conn) writeJob(j *muster.Job) error {
	if err := c.recordNotify(j); err != nil {
		return err
	}
	if err := c.exec(putJob, func(p *params) { row{p: p}.job(j) }); err != nil || j.Spec == nil {
		return err
	}
	return c.exec("INSERT INTO job_spec (job, spec) VALUES (?, ?)", func(p *params) {
		p.int(int64(j.ID))
		p.json(j.Spec, false)
	})
}

func (c *conn) writeAttempt(a *muster.Attempt) error {
	if err := c.exec(putAttempt, func(p *params) { row{p: p}.attempt(a) }); err != nil {
		return err
	}
	return c.putArtifacts(a.ID.Task.Job, a.Artifacts)
}

func (s *Store) writeIdempotency(k *store.IdempotencyKey) error {
	err := s.writer.exec("DELETE FROM idempotency WHERE at <= ?", values(int64(k.At.Add(-store.IdempotencyTTL))))
	if err != nil {
		return err
	}
	err = s.writer.exec("INSERT INTO idempotency (key, owner, digest, job, at) VALUES (?, ?, ?, ?, ?)", func(p *params) { row{p: p}.idempotencyKey(k) })
	if errors.Is(err, sqlite3.CONSTRAINT_PRIMARYKEY) {
		return muster.Errorf(muster.Conflict, "another job has the idempotency key %q", k.Key)
	}
	return err
}

func (s *Store) writeGroup(g *muster.Group) error {
	if err := s.writer.exec(putGroup, func(p *params) { row{p: p}.group(g) }); err != nil {
		return err
	}
	key := values(int64(g.Job), g.Index)
	written, known := s.resolvedSpecs[groupKey{g.Job, g.Index}]
	switch {
	case known && written == g.Resolved:
		return nil
	case g.Resolved == nil:
		return s.writer.exec("DELETE FROM task_group_spec WHERE job = ? AND idx = ?", key)
	default:
		return s.writer.exec("REPLACE INTO task_group_spec (job, idx, resolved) VALUES (?, ?, ?)", func(p *params) {
			key(p)
			p.json(g.Resolved, false)
		})
	}
}

// cacheResolved remembers which resolved specs are on disk, for the groups of jobs that
// have not ended. A spec is never changed in place, so the same pointer is the same spec.
func (s *Store) cacheResolved(b *store.Batch) {
	for i := range b.Groups {
		g := &b.Groups[i]
		s.resolvedSpecs[groupKey{g.Job, g.Index}] = g.Resolved
	}
	for i := range b.Jobs {
		j := &b.Jobs[i]
		if !j.State.Final() {
			continue
		}
		for idx := 0; ; idx++ { // a job's groups are numbered without gaps
			key := groupKey{j.ID, idx}
			if _, ok := s.resolvedSpecs[key]; !ok {
				break
			}
			delete(s.resolvedSpecs, key)
		}
	}
}

func (s *Store) writeTask(t *muster.Task) error {
	if err := s.writeTaskRow(t); err != nil {
		return err
	}
	return s.writer.putArtifacts(t.ID.Job, t.Artifacts)
}

// writeTaskRow updates a row that is known to exist and not to have ended, and otherwise
// writes all its columns, which takes longer.
func (s *Store) writeTaskRow(t *muster.Task) error {
	id := packTask(t.ID)
	_, live := s.openTasks[id]
	switch final := t.State.Final(); {
	case live && final:
		delete(s.openTasks, id)
		return s.writer.exec(finishTask, func(p *params) {
			row{p: p}.taskMutable(t)
			p.time(t.FinishedAt)
			p.int(id)
		})
	case live && t.FinishedAt == 0:
		return s.writer.exec(updateTask, func(p *params) {
			row{p: p}.taskMutable(t)
			p.int(id)
		})
	default:
		if !final {
			s.openTasks[id] = struct{}{}
		}
		return s.writer.exec(putTask, func(p *params) { row{p: p}.task(t) })
	}
}

// putLate keeps a late report if its attempt was assigned to its worker, and its job has less than MaxLateReports.
func (c *conn) putLate(r *muster.LateReport) error {
	const sql = `INSERT INTO late_report (task, n, report, worker, at) SELECT ?1, ?2, ?3, ?4, ?5
		WHERE (EXISTS (SELECT 1 FROM attempt WHERE task = ?1 AND n = ?2 AND worker = ?4) OR EXISTS (SELECT 1 FROM task WHERE id = ?1 AND attempt = ?2 AND worker = ?4))
		AND (SELECT count(*) FROM late_report WHERE task BETWEEN ?6 AND ?7) < ?8 AND EXISTS (SELECT 1 FROM job WHERE id = ?9)
		ON CONFLICT DO UPDATE SET report = excluded.report, at = excluded.at`
	return c.exec(sql, func(p *params) {
		job := r.Attempt.Task.Job
		p.int(packTask(r.Attempt.Task))
		p.int(int64(r.Attempt.N))
		p.json(&r.Report, false)
		p.text(string(r.Worker))
		p.int(int64(r.At))
		p.int(packTask(muster.TaskID{Job: job}))
		p.int(packTask(muster.TaskID{Job: job + 1}) - 1)
		p.int(store.MaxLateReports)
		p.int(int64(job))
	})
}

// LateReports implements store.LateReportReader.
func (s *Store) LateReports(ctx context.Context, job muster.JobID) ([]muster.LateReport, error) {
	return readList(ctx, s, "SELECT report, worker, at FROM late_report WHERE task BETWEEN ? AND ? AND EXISTS (SELECT 1 FROM job WHERE id = ?) ORDER BY task, n",
		values(packTask(muster.TaskID{Job: job}), packTask(muster.TaskID{Job: job + 1})-1, int64(job)), func(r row, l *muster.LateReport) {
			jsonField(r, &l.Report, false)
			text(r, &l.Worker)
			number(r, &l.At)
		})
}
