package sqlite

import (
	"context"
	"slices"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/store"
)

// Job implements store.Reader.
func (s *Store) Job(ctx context.Context, id muster.JobID) (muster.Job, error) {
	return read(ctx, s, func(c *conn) (muster.Job, error) { return c.job(id) })
}

// job returns a job with its spec and groups.
func (c *conn) job(id muster.JobID) (job muster.Job, err error) {
	job, found, err := first(c, "SELECT "+jobRead+", spec FROM job LEFT JOIN job_spec ON job_spec.job = id WHERE id = ?", values(int64(id)), func(r row, j *muster.Job) {
		r.jobRead(j)
		jsonPtr(r, &j.Spec)
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

// allStates is the set of all task states.
const allStates = int64(-1)

// jobSearch is the statement for a query, and its parameters in order. The statement has only the terms
// of the query, so that SQLite finds the index.
type jobSearch struct {
	sql  strings.Builder
	bind []func(*params)
}

func (j *jobSearch) where(term string, args ...any) {
	j.sql.WriteString(" AND " + term)
	j.bind = append(j.bind, values(args...))
}

func (j *jobSearch) whereText(term, value string) {
	if value != "" {
		j.where(term, value)
	}
}

const hasLabels = `NOT EXISTS (SELECT 1 FROM json_each(?) AS want WHERE NOT EXISTS (
   SELECT 1 FROM json_each(labels) AS has WHERE has.key = want.key AND has.value = want.value))`

func buildJobSearch(q *store.JobQuery, bound muster.JobID) *jobSearch {
	j := &jobSearch{}
	compare, order := "<", "DESC"
	if q.OldestFirst {
		compare, order = ">", "ASC"
	}
	j.sql.WriteString("SELECT " + jobRead + " FROM job WHERE id " + compare + " ?")
	j.bind = append(j.bind, values(int64(bound)))
	if len(q.States) > 0 {
		j.whereStates(q.States)
	}
	if q.Job != 0 {
		j.where("id = ?", int64(q.Job))
	}
	j.whereText("project = ?", q.Project)
	j.whereText("kind = ?", q.Kind)
	j.whereText("owner = ?", q.Owner)
	j.whereText("instr(name, ?) > 0", q.Name)
	if q.Since > 0 {
		j.where("created_at >= ?", int64(q.Since))
	}
	if q.Until > 0 {
		j.where("created_at <= ?", int64(q.Until))
	}
	if len(q.Labels) > 0 {
		j.where(hasLabels)
		j.bind = append(j.bind, func(p *params) { p.json(q.Labels, false) })
	}
	j.sql.WriteString(" ORDER BY id " + order + " LIMIT ?")
	j.bind = append(j.bind, values(q.Limit+1))
	return j
}

// whereStates adds that a job is in one of some states. It adds the redundant term of a partial index where that applies.
func (j *jobSearch) whereStates(states []muster.JobState) {
	set, live, failed := int64(0), true, true
	for _, st := range states {
		set |= 1 << jobStateNumber(st)
		live = live && !st.Final()
		failed = failed && (st == muster.JobFailed || st == muster.JobTimedOut)
	}
	j.where("(1 << state) & ? <> 0", set)
	switch {
	case live:
		j.where("state < 4") // job_live
	case failed:
		j.where("state IN (5, 6)") // job_failed
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
	jobs, err = readList(ctx, s, search.sql.String(), func(p *params) {
		for _, bind := range search.bind {
			bind(p)
		}
	}, row.jobRead)
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

// Each statement has the term of its partial index.
const (
	selectTasks     = "SELECT " + taskColumns + " FROM task WHERE (1 << state) & ? <> 0 AND id BETWEEN ? AND ? ORDER BY id LIMIT ?"
	selectLiveTasks = "SELECT " + taskColumns + " FROM task INDEXED BY task_live" +
		" WHERE (1 << state) & ? <> 0 AND id BETWEEN ? AND ? AND finished_at IS NULL ORDER BY id LIMIT ?"
	selectUnsuccessful = "SELECT " + taskColumns + " FROM task INDEXED BY task_not_succeeded" +
		" WHERE state = ? AND state > 6 AND id BETWEEN ? AND ? ORDER BY id LIMIT ?"
)

// tasks is a store.RowsFunc. Most rows are of tasks that succeeded; a search
// without them uses the indexes of the others.
func (c *conn) tasks(job muster.JobID, span store.Span, states []muster.TaskState, limit int) ([]muster.Task, error) {
	search := func(sql string, state int64) ([]muster.Task, error) {
		return list(c, sql, func(p *params) {
			p.int(state)
			taskRange(job, span.First, span.Last)(p)
			p.int(int64(limit))
		}, row.task)
	}
	if len(states) == 0 {
		return search(selectTasks, allStates)
	}
	var all, live int64
	for _, st := range states {
		all |= 1 << st
		if !st.Final() {
			live |= 1 << st
		}
	}
	if slices.Contains(states, muster.Succeeded) {
		return search(selectTasks, all)
	}
	var tasks []muster.Task
	if live != 0 {
		var err error
		if tasks, err = search(selectLiveTasks, live); err != nil {
			return nil, err
		}
	}
	for st := muster.Failed; st <= muster.Skipped; st++ {
		if all&(1<<st) == 0 {
			continue
		}
		more, err := search(selectUnsuccessful, int64(st))
		if err != nil {
			return nil, err
		}
		tasks = append(tasks, more...)
	}
	slices.SortFunc(tasks, func(a, b muster.Task) int { return a.Index - b.Index })
	return tasks[:min(limit, len(tasks))], nil
}

// Task implements store.Reader.
func (s *Store) Task(ctx context.Context, id muster.TaskID) (muster.Task, error) {
	return read(ctx, s, func(c *conn) (muster.Task, error) { return c.task(id) })
}

func (c *conn) task(id muster.TaskID) (task muster.Task, err error) {
	rows, err := c.tasks(id.Job, store.Span{First: id.Num, Last: id.Num}, nil, 1)
	if err != nil {
		return muster.Task{}, err
	}
	if len(rows) == 1 {
		if _, exists, err := first(c, "SELECT 1 FROM job WHERE id = ?", values(int64(id.Job)), number[int]); exists || err != nil {
			return rows[0], err
		}
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
func (s *Store) Attempts(ctx context.Context, id muster.TaskID) ([]muster.Attempt, error) {
	return read(ctx, s, func(c *conn) ([]muster.Attempt, error) {
		task, err := c.task(id)
		if err != nil {
			return nil, err
		}
		history, err := list(c, "SELECT "+attemptColumns+" FROM attempt WHERE task = ? ORDER BY n", values(packTask(id)), row.attempt)
		return store.WithCurrentAttempt(history, &task), err
	})
}

// Workers implements store.Reader.
func (s *Store) Workers(ctx context.Context) ([]muster.Worker, error) {
	return read(ctx, s, (*conn).workers)
}

// FindIdempotencyKey implements store.Reader.
func (s *Store) FindIdempotencyKey(ctx context.Context, owner, key string) (k store.IdempotencyKey, found bool, err error) {
	s.writeMu.Lock()
	defer s.writeMu.Unlock()
	err = s.readOnWriter(ctx, func(c *conn) error {
		k, found, err = first(c, "SELECT key, owner, digest, job, at FROM idempotency WHERE owner = ? AND key = ?", values(owner, key), row.idempotencyKey)
		return err
	})
	return k, found, err
}
