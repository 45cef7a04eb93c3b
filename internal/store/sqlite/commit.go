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
	for i := range b.Jobs {
		j := &b.Jobs[i]
		if err := w.recordNotify(j); err != nil {
			return err
		}
		if err := w.exec(putJob, func(p *params) { row{p: p}.job(j) }); err != nil {
			return err
		}
		if j.Spec == nil {
			continue
		}
		err := w.exec("INSERT INTO job_spec (job, spec) VALUES (?, ?)", func(p *params) {
			p.int(int64(j.ID))
			p.json(j.Spec, false)
		})
		if err != nil {
			return err
		}
	}
	for i := range b.IdempotencyKeys {
		if err := s.writeIdempotency(&b.IdempotencyKeys[i]); err != nil {
			return err
		}
	}
	for i := range b.Groups {
		if err := s.writeGroup(&b.Groups[i]); err != nil {
			return err
		}
	}
	for i := range b.Tasks {
		if err := s.writeTask(&b.Tasks[i]); err != nil {
			return err
		}
		if err := w.putArtifacts(b.Tasks[i].ID.Job, b.Tasks[i].Artifacts); err != nil {
			return err
		}
	}
	for i := range b.Attempts {
		if err := w.exec(putAttempt, func(p *params) { row{p: p}.attempt(&b.Attempts[i]) }); err != nil {
			return err
		}
		if err := w.putArtifacts(b.Attempts[i].ID.Task.Job, b.Attempts[i].Artifacts); err != nil {
			return err
		}
	}
	for i := range b.LateReports {
		if err := w.putLate(&b.LateReports[i]); err != nil {
			return err
		}
	}
	for i := range b.Workers {
		if err := w.exec(putWorker, func(p *params) { row{p: p}.worker(&b.Workers[i]) }); err != nil {
			return err
		}
	}
	for _, id := range b.RemovedWorkers {
		if err := w.exec("DELETE FROM worker WHERE id = ?", values(string(id))); err != nil {
			return err
		}
	}
	return nil
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

// writeTask updates a row that is known to exist and not to have ended, and otherwise
// writes all its columns, which takes longer.
func (s *Store) writeTask(t *muster.Task) error {
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
		AND (SELECT count(*) FROM late_report WHERE task BETWEEN ?6 AND ?7) < ?8
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
	})
}

// LateReports implements store.LateReportReader.
func (s *Store) LateReports(ctx context.Context, job muster.JobID) ([]muster.LateReport, error) {
	return readList(ctx, s, "SELECT report, worker, at FROM late_report WHERE task BETWEEN ? AND ? ORDER BY task, n",
		values(packTask(muster.TaskID{Job: job}), packTask(muster.TaskID{Job: job + 1})-1), func(r row, l *muster.LateReport) {
			jsonField(r, &l.Report, false)
			text(r, &l.Worker)
			number(r, &l.At)
		})
}
