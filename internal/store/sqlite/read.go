package sqlite

import (
	"context"
	"slices"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/store"
)

// Job implements store.Reader.
func (s *Store) Job(ctx context.Context, id muster.JobID) (job muster.Job, err error) {
	err = s.readTx(ctx, func(c *conn) error {
		job, err = c.job(id)
		return err
	})
	return job, err
}

// job returns a job with its spec and groups.
func (c *conn) job(id muster.JobID) (job muster.Job, err error) {
	found := false
	err = c.query("SELECT "+jobColumns+", spec FROM job LEFT JOIN job_spec ON job_spec.job = id WHERE id = ?",
		func(p *params) { p.int(int64(id)) },
		func(cols *columns) bool {
			job = cols.job()
			job.Spec = optionalJSON[muster.Spec](cols)
			found = true
			return true
		})
	if err != nil {
		return muster.Job{}, err
	}
	if !found {
		return muster.Job{}, muster.Errorf(muster.NotFound, "there is no job %s", id)
	}
	job.Groups, err = c.groups(id)
	return job, err
}

// allStates selects by any state in stateSet.
const allStates = int64(-1)

// jobSearch makes the statement for a query, and binds its parameters in the same order. Only what is asked for is in the
// statement, so that SQLite finds the index.
type jobSearch struct {
	sql  strings.Builder
	bind []func(*params)
}

func (j *jobSearch) where(term string, bind func(*params)) {
	j.sql.WriteString(" AND " + term)
	if bind != nil {
		j.bind = append(j.bind, bind)
	}
}

func (j *jobSearch) whereText(term, value string) {
	if value != "" {
		j.where(term, func(p *params) { p.text(value) })
	}
}

const hasLabels = `NOT EXISTS (SELECT 1 FROM json_each(?) AS want WHERE NOT EXISTS (
   SELECT 1 FROM json_each(labels) AS has WHERE has.key = want.key AND has.value = want.value))`

// buildJobSearch makes the search of a query.
func buildJobSearch(q *store.JobQuery, bound muster.JobID) *jobSearch {
	j := &jobSearch{}
	compare, order := "<", "DESC"
	if q.OldestFirst {
		compare, order = ">", "ASC"
	}
	j.sql.WriteString("SELECT " + jobColumns + " FROM job WHERE id " + compare + " ?")
	j.bind = append(j.bind, func(p *params) { p.int(int64(bound)) })
	if len(q.States) > 0 {
		j.whereStates(q.States)
	}
	if q.Job != 0 {
		j.where("id = ?", func(p *params) { p.int(int64(q.Job)) })
	}
	j.whereText("project = ?", q.Project)
	j.whereText("kind = ?", q.Kind)
	j.whereText("owner = ?", q.Owner)
	j.whereText("instr(name, ?) > 0", q.Name)
	if q.Since > 0 {
		j.where("created_at >= ?", func(p *params) { p.time(q.Since) })
	}
	if q.Until > 0 {
		j.where("created_at <= ?", func(p *params) { p.time(q.Until) })
	}
	if len(q.Labels) > 0 {
		j.where(hasLabels, func(p *params) { p.json(q.Labels, false) })
	}
	j.sql.WriteString(" ORDER BY id " + order + " LIMIT ?")
	j.bind = append(j.bind, func(p *params) { p.int(int64(q.Limit) + 1) })
	return j
}

// whereStates adds that a job is in one of these. Terms in the words of an index are added where they follow.
func (j *jobSearch) whereStates(whereStates []muster.JobState) {
	set, live, failed := int64(0), true, true
	for _, st := range whereStates {
		set |= 1 << jobStateNumber(st)
		live = live && !st.Final()
		failed = failed && (st == muster.JobFailed || st == muster.JobTimedOut)
	}
	j.where("(1 << state) & ? <> 0", func(p *params) { p.int(set) })
	switch {
	case live:
		j.where("state < 4", nil) // job_live
	case failed:
		j.where("state IN (5, 6)", nil) // job_failed
	}
}

// Jobs implements store.Reader.
func (s *Store) Jobs(ctx context.Context, q store.JobQuery) (jobs []muster.Job, cursor string, err error) {
	bound, err := q.UpperBound()
	if q.OldestFirst {
		bound, err = q.LowerBound()
	}
	if err != nil {
		return nil, "", err
	}
	search := buildJobSearch(&q, bound)
	err = s.readTx(ctx, func(c *conn) error {
		return c.query(search.sql.String(), func(p *params) {
			for _, bind := range search.bind {
				bind(p)
			}
		}, func(cols *columns) bool {
			jobs = append(jobs, cols.job())
			return true
		})
	})
	if err != nil {
		return nil, "", err
	}
	jobs, cursor = q.TrimPage(jobs)
	return jobs, cursor, nil
}

// Tasks implements store.Reader.
func (s *Store) Tasks(ctx context.Context, q store.TaskQuery) (tasks []muster.Task, cursor string, err error) {
	err = s.readTx(ctx, func(c *conn) error {
		job, err := c.job(q.Job)
		if err != nil {
			return err
		}
		rows := func(_ context.Context, span store.Span, states []muster.TaskState, limit int) ([]muster.Task, error) {
			return c.tasks(q.Job, span, states, limit)
		}
		tasks, cursor, err = store.PageTasks(ctx, q, &job, rows)
		return err
	})
	return tasks, cursor, err
}

// Each says the words of the index that is meant.
const (
	selectTasks     = "SELECT " + taskColumns + " FROM task WHERE (1 << state) & ? <> 0 AND id BETWEEN ? AND ? ORDER BY id LIMIT ?"
	selectLiveTasks = "SELECT " + taskColumns + " FROM task INDEXED BY task_live" +
		" WHERE (1 << state) & ? <> 0 AND id BETWEEN ? AND ? AND finished_at IS NULL ORDER BY id LIMIT ?"
	selectUnsuccessful = "SELECT " + taskColumns + " FROM task INDEXED BY task_not_succeeded" +
		" WHERE state = ? AND state > 6 AND id BETWEEN ? AND ? ORDER BY id LIMIT ?"
)

// tasks is a store.RowsFunc. Most rows are of tasks that succeeded; a search
// that leaves them out goes by the indexes of the others.
func (c *conn) tasks(job muster.JobID, span store.Span, states []muster.TaskState, limit int) ([]muster.Task, error) {
	var tasks []muster.Task
	search := func(sql string, state int64) error {
		return c.query(sql, func(p *params) {
			p.int(state)
			p.int(packTask(muster.TaskID{Job: job, Num: span.First}))
			p.int(packTask(muster.TaskID{Job: job, Num: span.Last}))
			p.int(int64(limit))
		}, func(cols *columns) bool {
			tasks = append(tasks, cols.task())
			return true
		})
	}
	if len(states) == 0 {
		err := search(selectTasks, allStates)
		return tasks, err
	}
	var all, live int64
	for _, st := range states {
		all |= 1 << st
		if !st.Final() {
			live |= 1 << st
		}
	}
	if slices.Contains(states, muster.Succeeded) {
		err := search(selectTasks, all)
		return tasks, err
	}
	if live != 0 {
		if err := search(selectLiveTasks, live); err != nil {
			return nil, err
		}
	}
	for st := muster.Failed; st <= muster.Skipped; st++ {
		if all&(1<<st) == 0 {
			continue
		}
		if err := search(selectUnsuccessful, int64(st)); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(tasks, func(a, b muster.Task) int { return a.Index - b.Index })
	return tasks[:min(limit, len(tasks))], nil
}

// Task implements store.Reader.
func (s *Store) Task(ctx context.Context, id muster.TaskID) (task muster.Task, err error) {
	err = s.readTx(ctx, func(c *conn) error {
		task, err = c.task(id)
		return err
	})
	return task, err
}

func (c *conn) task(id muster.TaskID) (task muster.Task, err error) {
	rows, err := c.tasks(id.Job, store.Span{First: id.Num, Last: id.Num}, nil, 1)
	if err != nil {
		return muster.Task{}, err
	}
	if len(rows) == 1 {
		return rows[0], nil
	}
	job, err := c.job(id.Job)
	if err != nil {
		return muster.Task{}, err
	}
	for i := range job.Groups {
		g := &job.Groups[i]
		if id.Num >= g.First+g.Materialized && id.Num < g.First+g.Size {
			return store.SynthesizeTask(&job, g, id.Num), nil
		}
	}
	return muster.Task{}, muster.Errorf(muster.NotFound, "there is no task %s", id)
}

// Attempts implements store.Reader.
func (s *Store) Attempts(ctx context.Context, id muster.TaskID) (attempts []muster.Attempt, err error) {
	err = s.readTx(ctx, func(c *conn) error {
		task, err := c.task(id)
		if err != nil {
			return err
		}
		err = c.query("SELECT "+attemptColumns+" FROM attempt WHERE task = ? ORDER BY n",
			func(p *params) { p.int(packTask(id)) },
			func(cols *columns) bool {
				attempts = append(attempts, cols.attempt())
				return true
			})
		attempts = store.WithCurrentAttempt(attempts, &task)
		return err
	})
	return attempts, err
}

// Workers implements store.Reader.
func (s *Store) Workers(ctx context.Context) (workers []muster.Worker, err error) {
	err = s.readTx(ctx, func(c *conn) error {
		workers, err = c.workers()
		return err
	})
	return workers, err
}

// FindIdempotencyKey implements store.Reader.
func (s *Store) FindIdempotencyKey(ctx context.Context, owner, key string) (k store.IdempotencyKey, found bool, err error) {
	s.writeMu.Lock()
	defer s.writeMu.Unlock()
	err = s.readOnWriter(ctx, func(c *conn) error {
		return c.query("SELECT digest, job, at FROM idempotency WHERE owner = ? AND key = ?", func(p *params) {
			p.text(owner)
			p.text(key)
		}, func(cols *columns) bool {
			k = store.IdempotencyKey{Key: key, Owner: owner, Digest: cols.text(), Job: muster.JobID(cols.int()), At: cols.time()}
			found = true
			return true
		})
	})
	return k, found, err
}
