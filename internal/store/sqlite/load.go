package sqlite

import (
	"cmp"
	"context"
	"slices"

	"github.com/muster-dev/muster"
)

// readOnWriter runs f in a transaction on the writer's connection, so that the engine
// does not wait for readers. The caller holds s.writeMu.
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

// Load implements store.Writer. It reads the finished tasks before Materialized only
// of groups with Retained.
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
	if snap.NextJob, _, err = first(c, "SELECT next_job FROM life", nil, number[muster.JobID]); err != nil {
		return snap, err
	}
	snap.Jobs, err = list(c, "SELECT "+jobColumns+", spec FROM job JOIN job_spec ON job_spec.job = id WHERE job.state < 4 ORDER BY id", nil, row.jobWithSpec)
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

// totals returns the counts of all tasks by project.
func (c *conn) totals() (map[string]muster.Counts, error) {
	totals := map[string]muster.Counts{}
	err := c.query("SELECT "+totalColumns+" FROM project_total", nil, func(cols *columns) bool {
		project, counts := cols.text(), muster.Counts{}
		row{c: cols}.counts(&counts)
		totals[project] = counts
		return true
	})
	return totals, err
}

// liveTasks returns the rows of tasks that are not final, of all tasks of groups with
// Retained, and of the tasks of other groups from Materialized on, by job and number.
func (c *conn) liveTasks(groups []muster.Group) ([]muster.Task, error) {
	tasks, err := list(c, selectUnfinished, nil, row.task)
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
		finished, err := list(c, "SELECT "+taskColumns+" FROM task WHERE id BETWEEN ? AND ? AND state >= 6 ORDER BY id",
			taskRange(g.Job, first, g.First+g.Size-1), row.task)
		if err != nil {
			return nil, err
		}
		tasks = append(tasks, finished...)
	}
	slices.SortFunc(tasks, func(a, b muster.Task) int {
		return cmp.Or(cmp.Compare(a.Job, b.Job), cmp.Compare(a.Index, b.Index))
	})
	return tasks, nil
}

// taskRange binds the packed ids of the tasks first and last of a job.
func taskRange(job muster.JobID, first, last int) func(*params) {
	return values(packTask(muster.TaskID{Job: job, Num: first}), packTask(muster.TaskID{Job: job, Num: last}))
}

func (c *conn) groups(job muster.JobID) ([]muster.Group, error) {
	return list(c, selectGroups+" WHERE job = ? ORDER BY idx", values(int64(job)), row.groupWithSpec)
}

func (c *conn) workers() ([]muster.Worker, error) {
	return list(c, "SELECT "+workerColumns+" FROM worker ORDER BY name, id", nil, row.worker)
}
