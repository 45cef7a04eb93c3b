package sqlite

import (
	"context"
	"slices"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/store"
)

// Job implements store.Reader.
func (s *Store) Job(ctx context.Context, id muster.JobID) (job muster.Job, err error) {
	err = s.read(ctx, func(c *conn) error {
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

// selectJobs walks from the newest job on; its parameters are numbered, since some
// stand twice.
const selectJobs = "SELECT " + jobColumns + ` FROM job WHERE id < ?1 AND (1 << state) & ?2 <> 0
 AND (?3 IS NULL OR project = ?3) AND (?4 IS NULL OR instr(name, ?4) > 0)
 AND (?5 IS NULL OR NOT EXISTS (SELECT 1 FROM json_each(?5) AS want WHERE NOT EXISTS (
   SELECT 1 FROM json_each(labels) AS has WHERE has.key = want.key AND has.value = want.value)))`

// Jobs implements store.Reader.
func (s *Store) Jobs(ctx context.Context, q store.JobQuery) (jobs []muster.Job, cursor string, err error) {
	before, err := q.Before()
	if err != nil {
		return nil, "", err
	}
	states, live := allStates, false
	if len(q.States) > 0 {
		states, live = 0, true
		for _, st := range q.States {
			states |= 1 << jobStateNumber(st)
			live = live && !st.Final()
		}
	}
	sql := selectJobs
	if live {
		sql += " AND state < 4" // the words of the index job_live
	}
	err = s.read(ctx, func(c *conn) error {
		return c.query(sql+" ORDER BY id DESC LIMIT ?6", func(p *params) {
			p.int(int64(before))
			p.int(states)
			p.someText(q.Project)
			p.someText(q.Name)
			p.json(q.Labels, len(q.Labels) == 0)
			p.int(int64(q.Limit) + 1)
		}, func(cols *columns) bool {
			jobs = append(jobs, cols.job())
			return true
		})
	})
	if err != nil {
		return nil, "", err
	}
	jobs, cursor = q.Cut(jobs)
	return jobs, cursor, nil
}

// Tasks implements store.Reader.
func (s *Store) Tasks(ctx context.Context, q store.TaskQuery) (tasks []muster.Task, cursor string, err error) {
	err = s.read(ctx, func(c *conn) error {
		job, err := c.job(q.Job)
		if err != nil {
			return err
		}
		rows := func(_ context.Context, span store.Span, states []muster.TaskState, limit int) ([]muster.Task, error) {
			return c.tasks(q.Job, span, states, limit)
		}
		tasks, cursor, err = store.Page(ctx, q, &job, rows)
		return err
	})
	return tasks, cursor, err
}

// Each says the words of the index that is meant.
const (
	selectTasks = "SELECT " + taskColumns + " FROM task WHERE (1 << state) & ? <> 0 AND id BETWEEN ? AND ? ORDER BY id LIMIT ?"
	selectLive  = "SELECT " + taskColumns + " FROM task INDEXED BY task_live" +
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
		if err := search(selectLive, live); err != nil {
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
	err = s.read(ctx, func(c *conn) error {
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
		if id.Num >= g.First+g.Next && id.Num < g.First+g.Size {
			return store.MakeUp(&job, g, id.Num), nil
		}
	}
	return muster.Task{}, muster.Errorf(muster.NotFound, "there is no task %s", id)
}

// Attempts implements store.Reader.
func (s *Store) Attempts(ctx context.Context, id muster.TaskID) (attempts []muster.Attempt, err error) {
	err = s.read(ctx, func(c *conn) error {
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
		attempts = store.WithCurrent(attempts, &task)
		return err
	})
	return attempts, err
}

// Workers implements store.Reader.
func (s *Store) Workers(ctx context.Context) (workers []muster.Worker, err error) {
	err = s.read(ctx, func(c *conn) error {
		workers, err = c.workers()
		return err
	})
	return workers, err
}

// Idempotent implements store.Reader.
func (s *Store) Idempotent(ctx context.Context, owner, key string) (k store.Idempotency, found bool, err error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	err = s.readAsWriter(ctx, func(c *conn) error {
		return c.query("SELECT digest, job, at FROM idempotency WHERE owner = ? AND key = ?", func(p *params) {
			p.text(owner)
			p.text(key)
		}, func(cols *columns) bool {
			k = store.Idempotency{Key: key, Owner: owner, Digest: cols.text(), Job: muster.JobID(cols.int()), At: cols.time()}
			found = true
			return true
		})
	})
	return k, found, err
}
