package sqlite

import (
	"context"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/store"
)

var _ store.SummaryReader = (*Store)(nil)

// The states of a million tasks are not read from their rows: there are indexes of the tasks that have not ended and of those that did not
// succeed, and all others with a row succeeded.
const (
	selectLiveStates         = "SELECT id, state FROM task INDEXED BY task_live WHERE finished_at IS NULL AND id BETWEEN ? AND ?"
	selectUnsuccessfulStates = "SELECT id, state FROM task INDEXED BY task_not_succeeded WHERE state = ? AND state > 6 AND id BETWEEN ? AND ?"
	selectStatesInRange      = "SELECT id, state FROM task WHERE id BETWEEN ? AND ?"
)

// TaskStates implements store.SummaryReader.
func (s *Store) TaskStates(ctx context.Context, id muster.JobID, span store.Span) (job muster.Job, list []store.GroupStates, err error) {
	err = s.readTx(ctx, func(c *conn) error {
		if job, err = c.job(id); err != nil {
			return err
		}
		list = make([]store.GroupStates, len(job.Groups))
		for i := range job.Groups {
			g := &job.Groups[i]
			list[i] = span.DefaultStates(g)
			if err := c.setStates(g, &list[i]); err != nil {
				return err
			}
		}
		return nil
	})
	return job, list, err
}

// setStates sets the states of tasks that have rows, and did not succeed or have a number from Materialized on.
func (c *conn) setStates(g *muster.Group, s *store.GroupStates) error {
	if len(s.States) == 0 {
		return nil
	}
	last := s.From + len(s.States) - 1
	set := func(cols *columns) bool {
		num := unpackTask(cols.int()).Num
		s.States[num-s.From] = muster.TaskState(cols.int())
		return true
	}
	if unmaterialized := max(s.From, g.First+g.Materialized); unmaterialized <= last && g.Counts[g.UnmaterializedState] < int64(g.Size) {
		if err := c.query(selectStatesInRange, taskRange(g.Job, unmaterialized, last), set); err != nil {
			return err
		}
		last = unmaterialized - 1
	}
	if last < s.From || g.Counts[muster.Succeeded] == int64(g.Size) {
		return nil
	}
	if g.Counts.Finished() < int64(g.Size) {
		if err := c.query(selectLiveStates, taskRange(g.Job, s.From, last), set); err != nil {
			return err
		}
	}
	for st := muster.Failed; st <= muster.Skipped; st++ {
		if g.Counts[st] == 0 {
			continue
		}
		err := c.query(selectUnsuccessfulStates, func(p *params) {
			p.int(int64(st))
			taskRange(g.Job, s.From, last)(p)
		}, set)
		if err != nil {
			return err
		}
	}
	return nil
}

// PreviousJob implements store.SummaryReader.
func (s *Store) PreviousJob(ctx context.Context, id muster.JobID) (muster.Job, error) {
	return read(ctx, s, func(c *conn) (muster.Job, error) {
		current, err := c.job(id)
		if err != nil {
			return muster.Job{}, err
		}
		job, found, err := first(c, selectPrevious, values(current.Project, current.Name, int64(id)), row.jobRead)
		if err == nil && !found {
			err = muster.Errorf(muster.NotFound, "no job before job %s in project %q is named %q", id, current.Project, current.Name)
		}
		return job, err
	})
}

const (
	selectPrevious = "SELECT " + jobRead + " FROM job INDEXED BY job_name WHERE project = ? AND name = ? AND id < ? ORDER BY id DESC LIMIT 1"
	// States 5 and 6 are failed and timed out; from 4 on, a job has ended.
	selectFailed = "SELECT id, project, name, finished_at FROM job INDEXED BY job_failed WHERE state IN (5, 6) ORDER BY id DESC LIMIT ?"
	selectEnded  = "SELECT id, state FROM job INDEXED BY job_name WHERE project = ? AND name = ? AND state >= 4 ORDER BY id DESC LIMIT ?"
)

// FailingNames implements store.SummaryReader.
func (s *Store) FailingNames(ctx context.Context, n int) (list []store.FailingName, err error) {
	err = s.readTx(ctx, func(c *conn) error {
		var failed []store.FailingName
		seen := map[[2]string]bool{}
		err := c.query(selectFailed, values(store.MaxFailedScanned), func(cols *columns) bool {
			f := store.FailingName{Job: muster.JobID(cols.int()), Project: cols.text(), Name: cols.text(), FinishedAt: cols.time()}
			if key := [2]string{f.Project, f.Name}; !seen[key] {
				seen[key] = true
				failed = append(failed, f)
			}
			return true
		})
		if err != nil {
			return err
		}
		for _, f := range failed {
			failures, latest := 0, muster.JobID(0)
			err := c.query(selectEnded, values(f.Project, f.Name, n), func(cols *columns) bool {
				latest = max(latest, muster.JobID(cols.int()))
				if st := cols.int(); st == jobStateNumber(muster.JobFailed) || st == jobStateNumber(muster.JobTimedOut) {
					failures++
				}
				return true
			})
			if err != nil {
				return err
			}
			if failures == n && latest == f.Job {
				list = append(list, f)
			}
		}
		return nil
	})
	return list, err
}
