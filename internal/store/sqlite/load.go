package sqlite

import (
	"cmp"
	"context"
	"slices"

	"github.com/muster-dev/muster"
)

// readOnWriter runs f in a transaction on the writer's connection: the engine,
// which is the one that writes, does not wait for others that read. The caller
// holds s.writing.
func (s *Store) readOnWriter(ctx context.Context, f func(*conn) error) error {
	if s.writer == nil {
		return errClosed()
	}
	if err := s.replaceBrokenWriter(ctx); err != nil {
		return err
	}
	if err := s.writer.inTx(ctx, forReading, func() error { return f(s.writer) }); err != nil {
		return s.wrapError(ctx, "read", err)
	}
	return nil
}

// Load implements store.Writer. Of a group that is not Kept it reads no
// finished task before Next.
func (s *Store) Load(ctx context.Context) (muster.Snapshot, error) {
	var snap muster.Snapshot
	s.writeMu.Lock()
	defer s.writeMu.Unlock()
	err := s.readOnWriter(ctx, func(c *conn) (err error) {
		snap, err = c.snapshot()
		return err
	})
	if err != nil {
		return muster.Snapshot{}, err
	}
	s.clearCache()
	for i := range snap.Tasks {
		if t := &snap.Tasks[i]; !t.State.Final() {
			s.openTasks[packTask(t.ID)] = struct{}{}
		}
	}
	for i := range snap.Groups {
		g := &snap.Groups[i]
		s.resolvedSpecs[groupKey{g.Job, g.Index}] = g.Resolved
	}
	return snap, nil
}

const selectGroups = "SELECT " + groupColumns + ", resolved FROM task_group LEFT JOIN task_group_spec USING (job, idx)"

const selectUnfinished = "SELECT " + taskColumns + " FROM task INDEXED BY task_live WHERE finished_at IS NULL"

func (c *conn) snapshot() (snap muster.Snapshot, err error) {
	err = c.query("SELECT next_job FROM life", nil, func(cols *columns) bool {
		snap.NextJob = muster.JobID(cols.int())
		return true
	})
	if err != nil {
		return snap, err
	}
	err = c.query("SELECT "+jobColumns+", spec FROM job JOIN job_spec ON job_spec.job = id WHERE job.state < 4 ORDER BY id", nil,
		func(cols *columns) bool {
			j := cols.job()
			j.Spec = optionalJSON[muster.Spec](cols)
			snap.Jobs = append(snap.Jobs, j)
			return true
		})
	if err != nil {
		return snap, err
	}
	for i := range snap.Jobs {
		groups, err := c.groups(snap.Jobs[i].ID)
		if err != nil {
			return snap, err
		}
		snap.Groups = append(snap.Groups, groups...)
	}
	if snap.Tasks, err = c.liveTasks(snap.Groups); err != nil {
		return snap, err
	}
	if snap.Workers, err = c.workers(); err != nil {
		return snap, err
	}
	snap.Totals, err = c.totals()
	return snap, err
}

const selectTotals = "SELECT project, sum(n_waiting), sum(n_queued), sum(n_assigned), sum(n_running), sum(n_cancelling), " +
	"sum(n_succeeded), sum(n_failed), sum(n_timed_out), sum(n_cancelled), sum(n_skipped) FROM job GROUP BY project"

// totals returns the counts of all tasks by project.
func (c *conn) totals() (map[string]muster.Counts, error) {
	totals := map[string]muster.Counts{}
	err := c.query(selectTotals, nil, func(cols *columns) bool {
		project := cols.text()
		totals[project] = cols.counts()
		return true
	})
	return totals, err
}

// liveTasks returns the rows of tasks that are not final, of all tasks of
// Kept groups, and of those from Next on, by job and number.
func (c *conn) liveTasks(groups []muster.Group) ([]muster.Task, error) {
	var tasks []muster.Task
	add := func(cols *columns) bool {
		tasks = append(tasks, cols.task())
		return true
	}
	err := c.query(selectUnfinished, nil, add)
	if err != nil {
		return nil, err
	}
	for i := range groups {
		g := &groups[i]
		first := g.First
		if !g.Retained {
			first += g.Materialized
		}
		if g.Counts.Finished() == 0 || first == g.First+g.Size {
			continue
		}
		err := c.query("SELECT "+taskColumns+" FROM task WHERE id BETWEEN ? AND ? AND state >= 6 ORDER BY id", func(p *params) {
			p.int(packTask(muster.TaskID{Job: g.Job, Num: first}))
			p.int(packTask(muster.TaskID{Job: g.Job, Num: g.First + g.Size - 1}))
		}, add)
		if err != nil {
			return nil, err
		}
	}
	slices.SortFunc(tasks, func(a, b muster.Task) int {
		return cmp.Or(cmp.Compare(a.Job, b.Job), cmp.Compare(a.Index, b.Index))
	})
	return tasks, nil
}

func (c *conn) groups(job muster.JobID) ([]muster.Group, error) {
	var groups []muster.Group
	err := c.query(selectGroups+" WHERE job = ? ORDER BY idx", func(p *params) { p.int(int64(job)) }, func(cols *columns) bool {
		groups = append(groups, cols.group())
		return true
	})
	return groups, err
}

func (c *conn) workers() ([]muster.Worker, error) {
	var workers []muster.Worker
	err := c.query("SELECT "+workerColumns+" FROM worker ORDER BY name, id", nil, func(cols *columns) bool {
		workers = append(workers, cols.worker())
		return true
	})
	return workers, err
}
