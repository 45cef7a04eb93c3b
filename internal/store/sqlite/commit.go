package sqlite

import (
	"context"
	"errors"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/store"
	"github.com/ncruces/go-sqlite3"
)

// groupKey names a group.
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
	return s.changeTo(ctx, next, func(*conn) error {
		if err := s.write(b); err != nil {
			return err
		}
		s.remember(b)
		return nil
	})
}

// change runs f in a writing transaction.
func (s *Store) change(ctx context.Context, f func(*conn) error) error { return s.changeTo(ctx, 0, f) }

// changeTo runs f in a writing transaction, after which the next job gets the number next at least.
func (s *Store) changeTo(ctx context.Context, next muster.JobID, f func(*conn) error) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	if s.writer == nil {
		return errClosed()
	}
	if err := s.unstick(ctx); err != nil {
		return err
	}
	err := s.writer.within(ctx, forWriting, func() error {
		if err := f(s.writer); err != nil {
			return err
		}
		return s.advance(next)
	})
	if err != nil {
		s.forget() // some of it may tell of what was undone
		return s.explain(ctx, "write", err)
	}
	s.repeat()
	return nil
}

// unstick replaces the writer's connection if it is of no more use. The caller holds s.writing.
func (s *Store) unstick(ctx context.Context) error {
	if !s.writer.stuck {
		return nil
	}
	_ = s.writer.close() // undoes what could not be undone
	fresh, err := openConn(ctx, s.path, writerPragmas)
	if err != nil {
		return s.explain(ctx, "open", err)
	}
	s.writer = fresh
	return nil
}

// forget drops what is known of the rows on disk. It is only a shortcut.
func (s *Store) forget() {
	clear(s.resolved)
	clear(s.live)
}

// write writes parents before children, as the foreign keys want it.
func (s *Store) write(b *store.Batch) error {
	w := s.writer
	for i := range b.Jobs {
		j := &b.Jobs[i]
		if err := w.noteJob(j); err != nil {
			return err
		}
		if err := w.exec(putJob, func(p *params) { p.job(j) }); err != nil {
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
	for i := range b.Keys {
		if err := s.writeIdempotency(&b.Keys[i]); err != nil {
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
		if err := w.exec(putAttempt, func(p *params) { p.attempt(&b.Attempts[i]) }); err != nil {
			return err
		}
		if err := w.putArtifacts(b.Attempts[i].ID.Task.Job, b.Attempts[i].Artifacts); err != nil {
			return err
		}
	}
	for i := range b.Late {
		if err := w.putLate(&b.Late[i]); err != nil {
			return err
		}
	}
	for i := range b.Workers {
		if err := w.exec(putWorker, func(p *params) { p.worker(&b.Workers[i]) }); err != nil {
			return err
		}
	}
	for _, id := range b.Gone {
		if err := w.exec("DELETE FROM worker WHERE id = ?", func(p *params) { p.text(string(id)) }); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) writeIdempotency(k *store.Idempotency) error {
	err := s.writer.exec("DELETE FROM idempotency WHERE at <= ?", func(p *params) {
		p.int(int64(k.At.Add(-store.KeepIdempotency)))
	})
	if err != nil {
		return err
	}
	err = s.writer.exec("INSERT INTO idempotency (owner, key, digest, job, at) VALUES (?, ?, ?, ?, ?)", func(p *params) {
		p.text(k.Owner)
		p.text(k.Key)
		p.text(k.Digest)
		p.int(int64(k.Job))
		p.int(int64(k.At))
	})
	if errors.Is(err, sqlite3.CONSTRAINT_PRIMARYKEY) {
		return muster.Errorf(muster.Conflict, "the idempotency key %q is taken by another job", k.Key)
	}
	return err
}

func (s *Store) writeGroup(g *muster.Group) error {
	if err := s.writer.exec(putGroup, func(p *params) { p.group(g) }); err != nil {
		return err
	}
	key := func(p *params) {
		p.int(int64(g.Job))
		p.int(int64(g.Index))
	}
	written, known := s.resolved[groupKey{g.Job, g.Index}]
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

// remember notes which resolved specs are on disk, for the groups of jobs that
// go on. A spec is never changed in place, so that the same pointer is the same spec.
func (s *Store) remember(b *store.Batch) {
	for i := range b.Groups {
		g := &b.Groups[i]
		s.resolved[groupKey{g.Job, g.Index}] = g.Resolved
	}
	for i := range b.Jobs {
		j := &b.Jobs[i]
		if !j.State.Final() {
			continue
		}
		for idx := 0; ; idx++ { // a job's groups are numbered without gaps
			key := groupKey{j.ID, idx}
			if _, ok := s.resolved[key]; !ok {
				break
			}
			delete(s.resolved, key)
		}
	}
}

// writeTask updates a row that is known to be there and not ended, and else writes
// it whole, which takes longer.
func (s *Store) writeTask(t *muster.Task) error {
	id := packTask(t.ID)
	_, live := s.live[id]
	switch final := t.State.Final(); {
	case live && final:
		delete(s.live, id)
		return s.writer.exec(endTask, func(p *params) {
			p.moving(t)
			p.time(t.FinishedAt)
			p.int(id)
		})
	case live && t.FinishedAt == 0:
		return s.writer.exec(moveTask, func(p *params) {
			p.moving(t)
			p.int(id)
		})
	default:
		if !final {
			s.live[id] = struct{}{}
		}
		return s.writer.exec(putTask, func(p *params) { p.task(t) })
	}
}

// putLate keeps a late report if its attempt was given to its worker, and its job does not have many of them.
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
		p.int(store.MaxLate)
	})
}

// Late implements store.LateReports.
func (s *Store) Late(ctx context.Context, job muster.JobID) (list []muster.LateReport, err error) {
	err = s.read(ctx, func(c *conn) error {
		return c.query("SELECT report, worker, at FROM late_report WHERE task BETWEEN ? AND ? ORDER BY task, n", func(p *params) {
			p.int(packTask(muster.TaskID{Job: job}))
			p.int(packTask(muster.TaskID{Job: job + 1}) - 1)
		}, func(cols *columns) bool {
			var r muster.LateReport
			cols.json(&r.Report)
			r.Worker, r.At = muster.WorkerID(cols.text()), cols.time()
			list = append(list, r)
			return true
		})
	})
	return list, err
}
