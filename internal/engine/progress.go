package engine

import (
	"sync"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/sched/effect"
)

// latest is the progress of running tasks: what is newer than their rows in the store, and the sum of each job.
type latest struct {
	mu     sync.RWMutex
	of     map[muster.TaskID]effect.Progress
	shares map[muster.TaskID]float64 // of tasks that a worker holds and that reported progress
	jobs   map[muster.JobID]jobShare
}

// jobShare adds up the shares of the tasks of a job.
type jobShare struct {
	sum   float64
	tasks int
}

func newLatest() latest {
	return latest{of: map[muster.TaskID]effect.Progress{}, shares: map[muster.TaskID]float64{}, jobs: map[muster.JobID]jobShare{}}
}

// take adds what a batch reported. Rows that were written have all of theirs.
func (l *latest) take(reported []effect.Progress, written []muster.Task) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range reported {
		l.of[reported[i].Task] = reported[i]
		l.share(reported[i].Task, reported[i].Progress)
	}
	for i := range written {
		t := &written[i]
		delete(l.of, t.ID)
		if t.State.HoldsResources() {
			l.share(t.ID, t.Progress)
		} else {
			l.share(t.ID, nil)
		}
	}
}

// share sets the share of a task that is done, nil if it does not count.
func (l *latest) share(id muster.TaskID, share *float64) {
	before, had := l.shares[id]
	if !had && share == nil {
		return
	}
	j := l.jobs[id.Job]
	if had {
		j.sum -= before
		j.tasks--
		delete(l.shares, id)
	}
	if share != nil {
		j.sum += *share
		j.tasks++
		l.shares[id] = *share
	}
	if j.tasks == 0 {
		delete(l.jobs, id.Job) // with what adding and subtracting has rounded
		return
	}
	l.jobs[id.Job] = j
}

// reset begins with the rows of a state that was loaded.
func (l *latest) reset(tasks []muster.Task) {
	l.mu.Lock()
	clear(l.of)
	clear(l.shares)
	clear(l.jobs)
	l.mu.Unlock()
	l.take(nil, tasks)
}

// Latest sets the progress of a task that was read from the store to what its attempt last reported: that is
// written every few seconds only.
func (e *Engine) Latest(t *muster.Task) {
	l := &e.latest
	l.mu.RLock()
	defer l.mu.RUnlock()
	if p, ok := l.of[t.ID]; ok && p.Attempt == t.Attempt && !t.State.Final() {
		t.Progress, t.Step, t.Metrics = p.Progress, p.Step, p.Metrics
	}
}

// LatestOfJob sets the progress of a job that was read from the store: the finished tasks and the shares of the running
// ones, of all tasks.
func (e *Engine) LatestOfJob(j *muster.Job) {
	c := &j.Counts
	total := c.Total()
	if total == 0 || j.State.Final() {
		return
	}
	e.latest.mu.RLock()
	sum := e.latest.jobs[j.ID].sum
	e.latest.mu.RUnlock()
	// A task may have ended since the counts were read, or begun.
	sum = min(max(sum, 0), float64(c[muster.Assigned]+c[muster.Running]+c[muster.Cancelling]))
	share := (float64(c.Finished()) + sum) / float64(total)
	j.Progress = &share
}
