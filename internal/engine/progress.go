package engine

import (
	"sync"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/sched"
)

// progressCache has the progress of running tasks that is newer than their stored rows, and the sum for each job.
type progressCache struct {
	mu     sync.RWMutex
	byTask map[muster.TaskID]sched.Progress
	shares map[muster.TaskID]float64 // progress of tasks that a worker holds
	jobs   map[muster.JobID]jobShare
}

// jobShare is the sum of the progress of a job's running tasks.
type jobShare struct {
	sum   float64
	tasks int
}

func newProgressCache() progressCache {
	return progressCache{byTask: map[muster.TaskID]sched.Progress{}, shares: map[muster.TaskID]float64{}, jobs: map[muster.JobID]jobShare{}}
}

// update adds the progress of a batch. Written rows include theirs.
func (l *progressCache) update(reported []sched.Progress, written []muster.Task) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range reported {
		l.byTask[reported[i].Task] = reported[i]
		l.setShare(reported[i].Task, reported[i].Progress)
	}
	for i := range written {
		t := &written[i]
		delete(l.byTask, t.ID)
		if t.State.HoldsResources() {
			l.setShare(t.ID, t.Progress)
		} else {
			l.setShare(t.ID, nil)
		}
	}
}

// setShare sets the progress of a task, or removes it if nil.
func (l *progressCache) setShare(id muster.TaskID, setShare *float64) {
	before, had := l.shares[id]
	if !had && setShare == nil {
		return
	}
	j := l.jobs[id.Job]
	if had {
		j.sum -= before
		j.tasks--
		delete(l.shares, id)
	}
	if setShare != nil {
		j.sum += *setShare
		j.tasks++
		l.shares[id] = *setShare
	}
	if j.tasks == 0 {
		delete(l.jobs, id.Job) // also drops rounding errors
		return
	}
	l.jobs[id.Job] = j
}

// reset replaces everything with the rows of a loaded state.
func (l *progressCache) reset(tasks []muster.Task) {
	l.mu.Lock()
	clear(l.byTask)
	clear(l.shares)
	clear(l.jobs)
	l.mu.Unlock()
	l.update(nil, tasks)
}

// ApplyProgress sets the progress of a task that was read from the store to what its attempt last reported, which is
// written every few seconds only.
func (e *Engine) ApplyProgress(t *muster.Task) {
	l := &e.progress
	l.mu.RLock()
	defer l.mu.RUnlock()
	if p, ok := l.byTask[t.ID]; ok && p.Attempt == t.Attempt && !t.State.Final() {
		t.Progress, t.Step, t.Metrics = p.Progress, p.Step, p.Metrics
	}
}

// ApplyJobProgress sets the progress of a job that was read from the store: the finished tasks and the progress of the running
// ones, divided by the number of tasks.
func (e *Engine) ApplyJobProgress(j *muster.Job) {
	c := &j.Counts
	total := c.Total()
	if total == 0 || j.State.Final() {
		return
	}
	e.progress.mu.RLock()
	sum := e.progress.jobs[j.ID].sum
	e.progress.mu.RUnlock()
	// A task may have started or ended since the counts were read.
	sum = min(max(sum, 0), float64(c[muster.Assigned]+c[muster.Running]+c[muster.Cancelling]))
	share := (float64(c.Finished()) + sum) / float64(total)
	j.Progress = &share
}
