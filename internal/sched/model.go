package sched

import (
	"cmp"
	"slices"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/dag"
	"github.com/muster-dev/muster/internal/placement"
	"github.com/muster-dev/muster/internal/sched/queue"
)

// job is a live job: one with a task that is not final.
type job struct {
	Row       muster.Job // without Groups and Progress
	Groups    []*group
	Order     []*group // every group after those that it needs
	Project   *queue.Project
	Stats     *projectStats // of the project
	Failures  int           // failed attempts
	SpecDirty bool          // no row of it was flushed yet: the row must include the spec
	Dirty     bool
	Touched   bool // its counts changed since the last propagate
}

// group is a live job's stage.
type group struct {
	Row        muster.Group
	Job        *job
	Needs      []*group
	Dependents []*group      // groups that need this one
	Tasks      map[int]*task // by element: not final, or retained, or materialized ahead of the cursor
	outOfOrder int           // tasks at or after the cursor
	Item       queue.Item    // the queue item of the unmaterialized elements
	Timer      queue.Timer
	Inputs     []dag.InputFile // set when the group becomes ready
	Dirty      bool
	Touched    bool         // its dependents must be checked at the next propagate
	Shape      *queue.Shape // of its tasks, once one of them was queued; the queue may evict it
}

// Spec returns the spec of the group's tasks, with stage references resolved once it
// is ready.
func (g *group) Spec() *muster.TaskSpec {
	if g.Row.Resolved != nil {
		return g.Row.Resolved
	}
	return &g.Job.Row.Spec.Tasks[g.Row.Index]
}

// Size returns how many tasks the group's queue item stands for.
func (g *group) Size() int {
	if g.Gang() {
		return g.Row.Size
	}
	return g.Unmaterialized()
}

// CountBelow returns how many tasks of the group's queue item have a lower number.
func (g *group) CountBelow(num int) int {
	end := min(num-g.Row.First, g.Row.Size)
	if g.Gang() {
		return max(end, 0)
	}
	n := max(end-g.Row.Materialized, 0)
	if g.outOfOrder > 0 && n > 0 {
		for e := range g.Tasks {
			if e >= g.Row.Materialized && e < end {
				n--
			}
		}
	}
	return n
}

// Unmaterialized returns how many elements have no row of their own.
func (g *group) Unmaterialized() int { return g.Row.Size - g.Row.Materialized - g.outOfOrder }

// Unsuccessful returns how many tasks ended without success.
func (g *group) Unsuccessful() int64 { return g.Row.Counts.Finished() - g.Row.Counts[muster.Succeeded] }

// Succeeded reports whether all tasks did.
func (g *group) Succeeded() bool { return g.Row.Counts[muster.Succeeded] == int64(g.Row.Size) }

// SortedTasks returns the group's tasks in memory by number.
func (g *group) SortedTasks() []*task {
	list := make([]*task, 0, len(g.Tasks))
	for _, t := range g.Tasks {
		list = append(list, t)
	}
	slices.SortFunc(list, byNumber)
	return list
}

// task is a task with a row of its own.
type task struct {
	Row            muster.Task
	Group          *group
	Item           queue.Item
	Timer          queue.Timer
	Dirty          bool
	StoredProgress *progressSnapshot // the progress in its written row if Row is newer, else nil

	// While a worker holds it:
	Worker        *worker
	Shape         *queue.Shape
	HeldIndex     int           // position in Worker.Held
	Accepted      bool          // the worker confirmed it
	LastRenewal   uint64        // the last of Worker.Renewals that listed it
	StopBy        muster.Time   // when a stopped attempt is abandoned
	PreemptReason muster.Reason // why it is being preempted, or NoReason

	Rejections int             // in a row
	Avoid      queue.AvoidList // workers that rejected or failed it recently
	FailedOn   []*worker       // workers on which attempts failed by the fleet's fault; see State.crashLimit
}

// progressSnapshot is the progress in a task's row.
type progressSnapshot struct {
	Progress *float64
	Step     string
	Metrics  map[string]float64
}

// Size returns 1: the task's queue item stands for it alone.
func (t *task) Size() int { return 1 }

// CountBelow returns 1 if the task has a lower number, else 0.
func (t *task) CountBelow(num int) int {
	if t.Row.ID.Num < num {
		return 1
	}
	return 0
}

// Attempt returns the id of the current attempt, or of the last one.
func (t *task) Attempt() muster.AttemptID { return muster.AttemptID{Task: t.Row.ID, N: t.Row.Attempt} }

// Element returns the position in the group.
func (t *task) Element() int { return t.Row.ID.Num - t.Group.Row.First }

// RecordRuntime records the run time of a task that succeeded.
func (t *task) RecordRuntime(end muster.Time) {
	if t.Row.StartedAt > 0 {
		t.Shape.Ran++
		t.Shape.Runtime += end.Sub(t.Row.StartedAt)
	}
}

func byNumber(a, b *task) int {
	return cmp.Or(cmp.Compare(a.Row.ID.Job, b.Row.ID.Job), cmp.Compare(a.Row.ID.Num, b.Row.ID.Num))
}

// worker is a known worker, connected or not.
type worker struct {
	queue.Worker

	Row           muster.Worker // without Free, Running and Load
	Held          []*task
	Connected     bool // has a session
	Responsive    bool // and was seen within Config.HeartbeatTimeout
	Gone          bool
	DrainSent     bool // was told that its drain is complete
	CleanShutdown bool // is gone because it shut down in order
	Evicting      bool // drains, and its tasks were preempted at its deadline
	Shrunk        bool // offers less than its tasks hold
	Constrained   string
	UsedAttempts  map[muster.AttemptID]struct{} // not current, but it still has data of them: new attempts must not reuse their numbers
	Seen          muster.Time                   // when it last sent something
	SessionStart  muster.Time                   // start of the session
	Renewals      uint64                        // heartbeats so far
	Load          *muster.Load
	Health        healthRecord
	Avoided       bool // as last published: its health closes it
	Timer         queue.Timer
	Dirty         bool
}

// newWorker makes a worker that is not part of the fleet yet.
func newWorker(row muster.Worker) *worker {
	w := &worker{Row: row, Gone: true}
	w.Owner, w.Timer.Subject = w, w
	return w
}

// Unused returns the first attempt number from n on that the worker has no data of.
func (w *worker) Unused(t muster.TaskID, n int) int {
	for len(w.UsedAttempts) > 0 {
		if _, used := w.UsedAttempts[muster.AttemptID{Task: t, N: n}]; !used {
			break
		}
		n++
	}
	return n
}

// FreeIn estimates in how long the worker will have room for so many tasks with need
// n. Each held task is expected to run as long as others of its shape did or, if it
// has run longer, as long again as it has run. Unless since is 0, it ignores tasks
// assigned since then.
func (w *worker) FreeIn(now muster.Time, n *placement.Need, tasks int, since muster.Time) muster.Duration {
	ends := make([]placement.ExpectedRelease, len(w.Held))
	for i, t := range w.Held {
		ends[i].Grant = t.Row.Grant
		if since > 0 && t.Row.AssignedAt >= since {
			continue
		}
		in := now.Sub(t.Row.AssignedAt)
		if sh := t.Shape; sh.Ran > 0 && sh.Runtime/muster.Duration(sh.Ran) > in {
			in = sh.Runtime/muster.Duration(sh.Ran) - in
		}
		ends[i].In = in
	}
	return w.Usage.FreeIn(n, tasks, ends)
}

// Reachable reports whether the worker is connected and responsive.
func (w *worker) Reachable() bool { return w.Connected && w.Responsive }

// SortedTasks returns the worker's tasks by number.
func (w *worker) SortedTasks() []*task {
	list := slices.Clone(w.Held)
	slices.SortFunc(list, byNumber)
	return list
}
