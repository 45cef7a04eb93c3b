package sqlite

import (
	"context"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/store"
)

var (
	_ store.ScheduleStore    = (*Store)(nil)
	_ store.ScheduleRunStore = (*Store)(nil)
)

const (
	scheduleColumns = "project, name, cron, timezone, missed, overlap, owner, owner_name, created_at, updated_at, paused, next_at, last_at"
	selectSchedule  = "SELECT id, " + scheduleColumns + ", spec FROM schedule "

	selectScheduleLast = selectSchedule + "INDEXED BY schedule_last WHERE next_at IS NOT NULL AND last_at > ? ORDER BY last_at DESC LIMIT 1"
	selectScheduleNext = selectSchedule + "INDEXED BY schedule_next WHERE next_at IS NOT NULL ORDER BY next_at LIMIT 1"
	selectActiveRuns   = "SELECT job.id FROM schedule_run CROSS JOIN job ON job.id = schedule_run.job WHERE schedule = ? AND job.finished_at IS NULL ORDER BY n"
)

// Schedules implements store.ScheduleStore.
func (s *Store) Schedules(ctx context.Context, project string) ([]store.Schedule, error) {
	return readList(ctx, s, "SELECT id, "+scheduleColumns+" FROM schedule WHERE ?1 IN ('', project) ORDER BY project, name", values(project), row.scheduleWithID)
}

// Schedule implements store.ScheduleStore.
func (s *Store) Schedule(ctx context.Context, project, name string) (store.Schedule, error) {
	v, found, err := readFirst(ctx, s, selectSchedule+"WHERE project = ? AND name = ?", values(project, name), row.scheduleWithSpec)
	if err == nil && !found {
		err = noSchedule(project, name)
	}
	return v, err
}

func noSchedule(project, name string) error {
	return muster.Errorf(muster.NotFound, "project %s has no schedule %s: muster schedule list shows all", project, name)
}

// PutSchedule implements store.ScheduleStore.
func (s *Store) PutSchedule(ctx context.Context, v store.Schedule, replace bool) (stored store.Schedule, err error) {
	err = s.writeTx(ctx, func(c *conn) error {
		old, found, err := first(c, selectSchedule+"WHERE project = ? AND name = ?", values(v.Project, v.Name), row.scheduleWithSpec)
		switch {
		case err != nil:
			return err
		case found && !replace:
			return muster.Errorf(muster.Conflict, "project %s has a schedule %s: delete it first, or replace it", v.Project, v.Name)
		case found:
			v.ID, v.CreatedAt = old.ID, old.CreatedAt
		default:
			if err := c.checkSchedules(v.Project); err != nil {
				return err
			}
			last, _, err := first(c, "SELECT max(id) FROM schedule", nil, number[store.ScheduleID])
			if err != nil {
				return err
			}
			v.ID = last + 1
		}
		stored = v
		return c.exec("INSERT INTO schedule (id, "+scheduleColumns+", spec) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15) "+
			"ON CONFLICT (id) DO UPDATE SET cron = ?4, timezone = ?5, missed = ?6, overlap = ?7, owner = ?8, owner_name = ?9, updated_at = ?11, paused = ?12, next_at = ?13, last_at = ?14, spec = ?15",
			func(p *params) { row{p: p}.scheduleWithSpec(&v) })
	})
	return stored, err
}

// checkSchedules returns a Conflict if a project may have no further schedule.
func (c *conn) checkSchedules(project string) error {
	for _, limit := range []struct {
		where string
		max   int
	}{{"of the project", store.MaxProjectSchedules}, {"of the server", store.MaxSchedules}} {
		n, _, err := first(c, "SELECT count(*) FROM schedule WHERE ?1 IN ('', project)", values(project), number[int])
		if err != nil {
			return err
		}
		if n >= limit.max {
			return muster.Errorf(muster.Conflict, "%d is the maximum number of schedules %s: delete some first", limit.max, limit.where)
		}
		project = ""
	}
	return nil
}

// SetScheduleNext implements store.ScheduleStore.
func (s *Store) SetScheduleNext(ctx context.Context, id store.ScheduleID, paused bool, next, updatedAt muster.Time) error {
	return s.writeTx(ctx, func(c *conn) error {
		return c.exec("UPDATE schedule SET paused = ?, next_at = ?, last_at = NULL, updated_at = ? WHERE id = ?", func(p *params) {
			p.bool(paused)
			p.time(next)
			p.int(int64(updatedAt))
			p.int(int64(id))
		})
	})
}

// DeleteSchedule implements store.ScheduleStore.
func (s *Store) DeleteSchedule(ctx context.Context, project, name string) error {
	return s.writeTx(ctx, func(c *conn) error {
		if err := c.exec("DELETE FROM schedule WHERE project = ? AND name = ?", values(project, name)); err != nil {
			return err
		}
		if c.db.Changes() == 0 {
			return noSchedule(project, name)
		}
		return nil
	})
}

// FirstSchedule implements store.ScheduleRunStore.
func (s *Store) FirstSchedule(ctx context.Context, lastAfter muster.Time) (v store.Schedule, found bool, err error) {
	err = s.readTx(ctx, func(c *conn) error {
		if v, found, err = first(c, selectScheduleLast, values(int64(lastAfter)), row.scheduleWithSpec); found || err != nil {
			return err
		}
		v, found, err = first(c, selectScheduleNext, nil, row.scheduleWithSpec)
		return err
	})
	return v, found, err
}

// RecordRun implements store.ScheduleRunStore.
func (s *Store) RecordRun(ctx context.Context, r store.ScheduleRun) error {
	return s.writeTx(ctx, func(c *conn) error { return c.writeRun(&r) })
}

// writeRun adds a run, changes the next one of its schedule, and deletes old runs.
func (c *conn) writeRun(r *store.ScheduleRun) error {
	if !r.Manual {
		if err := c.exec("UPDATE schedule SET next_at = ?, last_at = max(ifnull(last_at, 0), ?) WHERE id = ? AND next_at = ?", func(p *params) {
			p.time(r.Next)
			p.int(int64(r.At))
			p.int(int64(r.Schedule))
			p.int(int64(r.Due))
		}); err != nil {
			return err
		}
	}
	if err := c.exec(`INSERT INTO schedule_run (schedule, n, at, decided_at, outcome, manual, job, message)
		SELECT ?1, 1 + ifnull((SELECT max(n) FROM schedule_run WHERE schedule = ?1), 0), ?3, ?4, ?5, ?6, ?7, ?8 WHERE EXISTS (SELECT 1 FROM schedule WHERE id = ?1)`,
		func(p *params) { row{p: p}.scheduleRun(r) }); err != nil {
		return err
	}
	return c.exec(`DELETE FROM schedule_run WHERE schedule = ?1 AND n <= (SELECT max(n) FROM schedule_run WHERE schedule = ?1) - ?2
		AND NOT EXISTS (SELECT 1 FROM job WHERE id = schedule_run.job AND finished_at IS NULL)`, values(int64(r.Schedule), store.MaxScheduleRuns))
}

// ScheduleRuns implements store.ScheduleRunStore.
func (s *Store) ScheduleRuns(ctx context.Context, id store.ScheduleID) ([]store.ScheduleRun, error) {
	return readList(ctx, s, "SELECT schedule, n, at, decided_at, outcome, manual, job, message FROM schedule_run WHERE schedule = ? ORDER BY n DESC", values(int64(id)), row.scheduleRun)
}

// ActiveRuns implements store.ScheduleRunStore.
func (s *Store) ActiveRuns(ctx context.Context, id store.ScheduleID) ([]muster.JobID, error) {
	return readList(ctx, s, selectActiveRuns, values(int64(id)), number[muster.JobID])
}

// KeyByID implements store.ScheduleRunStore.
func (s *Store) KeyByID(ctx context.Context, id string) (store.Key, error) {
	key, found, err := readFirst(ctx, s, "SELECT "+keyColumns+" FROM api_key WHERE id = ?", values(id), row.key)
	if err == nil && !found {
		err = muster.Errorf(muster.NotFound, "there is no key %q", id)
	}
	return key, err
}

func (r row) scheduleWithID(v *store.Schedule) {
	number(r, &v.ID)
	text(r, &v.Project)
	text(r, &v.Name)
	text(r, &v.Cron)
	text(r, &v.Timezone)
	text(r, &v.Missed)
	text(r, &v.Overlap)
	text(r, &v.Owner)
	text(r, &v.OwnerName)
	number(r, &v.CreatedAt)
	number(r, &v.UpdatedAt)
	r.bool(&v.Paused)
	optNumber(r, &v.Next)
	optNumber(r, &v.Last)
}

func (r row) scheduleWithSpec(v *store.Schedule) {
	r.scheduleWithID(v)
	jsonPtr(r, &v.Spec)
}

func (r row) scheduleRun(v *store.ScheduleRun) {
	number(r, &v.Schedule)
	number(r, &v.N)
	number(r, &v.At)
	number(r, &v.DecidedAt)
	text(r, &v.Outcome)
	r.bool(&v.Manual)
	optNumber(r, &v.Job)
	optText(r, &v.Message)
}
