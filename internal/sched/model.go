package sched

import (
	"cmp"
	"maps"
	"slices"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/dag"
	"github.com/muster-dev/muster/internal/placement"
	"github.com/muster-dev/muster/internal/sched/queue"
)

// job is a live job: one with a task that is not final.
type job struct {
	row       muster.Job // without Groups and Progress
	groups    []*group
	order     []*group // every group after those that it needs
	project   *queue.Project
	stats     *projectStats // of the project
	failures  int           // failed attempts
	specDirty bool          // no row of it was flushed yet: the row must include the spec
	dirty     bool
	touched   bool // its counts changed since the last propagate
}

// group is a live job's stage.
type group struct {
	row        muster.Group
	job        *job
	needs      []*group
	dependents []*group      // groups that need this one
	tasks      map[int]*task // by element: not final, or retained, or materialized ahead of the cursor
	outOfOrder int           // tasks at or after the cursor
	item       queue.Item    // the queue item of the unmaterialized elements
	timer      queue.Timer
	inputs     []dag.InputFile // set when the group becomes ready
	dirty      bool
	touched    bool         // its dependents must be checked at the next propagate
	shape      *queue.Shape // of its tasks, once one of them was queued; the queue may evict it
}

// spec returns the spec of the group's tasks, with stage references resolved once it
// is ready.
func (g *group) spec() *muster.TaskSpec {
	if g.row.Resolved != nil {
		return g.row.Resolved
	}
	return &g.job.row.Spec.Tasks[g.row.Index]
}

// Size returns how many tasks the group's queue item stands for.
func (g *group) Size() int {
	if g.gang() {
		return g.row.Size
	}
	return g.unmaterialized()
}

// CountBelow returns how many tasks of the group's queue item have a lower number.
func (g *group) CountBelow(num int) int {
	end := min(num-g.row.First, g.row.Size)
	if g.gang() {
		return max(end, 0)
	}
	n := max(end-g.row.Materialized, 0)
	if g.outOfOrder > 0 && n > 0 {
		for e := range g.tasks {
			if e >= g.row.Materialized && e < end {
				n--
			}
		}
	}
	return n
}

// unmaterialized returns how many elements have no row of their own.
func (g *group) unmaterialized() int { return g.row.Size - g.row.Materialized - g.outOfOrder }

// unsuccessful returns how many tasks ended without success.
func (g *group) unsuccessful() int64 { return g.row.Counts.Finished() - g.row.Counts[muster.Succeeded] }

// succeeded reports whether all tasks did.
func (g *group) succeeded() bool { return g.row.Counts[muster.Succeeded] == int64(g.row.Size) }

// sortedTasks returns the group's tasks in memory by number.
func (g *group) sortedTasks() []*task {
	return slices.SortedFunc(maps.Values(g.tasks), byNumber)
}

// task is a task with a row of its own.
type task struct {
	row            muster.Task
	group          *group
	item           queue.Item
	timer          queue.Timer
	dirty          bool
	storedProgress *progressSnapshot // the progress in its written row if row is newer, else nil

	// While a worker holds it:
	worker        *worker
	shape         *queue.Shape
	heldIndex     int           // position in worker.held
	accepted      bool          // the worker confirmed it
	lastRenewal   uint64        // the last of worker.renewals that listed it
	stopBy        muster.Time   // when a stopped attempt is abandoned
	preemptReason muster.Reason // why it is being preempted, or NoReason

	rejections int             // in a row
	avoid      queue.AvoidList // workers that rejected or failed it recently
	failedOn   []*worker       // workers on which attempts failed by the fleet's fault; see State.crashLimit
}

// progressSnapshot is the progress in a task's row.
type progressSnapshot struct {
	progress *float64
	step     string
	metrics  map[string]float64
}

// Size returns 1: the task's queue item stands for it alone.
func (t *task) Size() int { return 1 }

// CountBelow returns 1 if the task has a lower number, else 0.
func (t *task) CountBelow(num int) int {
	if t.row.ID.Num < num {
		return 1
	}
	return 0
}

// attempt returns the id of the current attempt, or of the last one.
func (t *task) attempt() muster.AttemptID { return muster.AttemptID{Task: t.row.ID, N: t.row.Attempt} }

// element returns the position in the group.
func (t *task) element() int { return t.row.ID.Num - t.group.row.First }

// recordRuntime records the run time of a task that succeeded.
func (t *task) recordRuntime(end muster.Time) {
	if t.row.StartedAt > 0 {
		t.shape.Ran++
		t.shape.Runtime += end.Sub(t.row.StartedAt)
	}
}

func byNumber(a, b *task) int {
	return cmp.Or(cmp.Compare(a.row.ID.Job, b.row.ID.Job), cmp.Compare(a.row.ID.Num, b.row.ID.Num))
}

// worker is a known worker, connected or not.
type worker struct {
	queue.Worker

	row           muster.Worker // without Free, Running and Load
	held          []*task
	connected     bool // has a session
	responsive    bool // and was seen within Config.HeartbeatTimeout
	gone          bool
	drainSent     bool // was told that its drain is complete
	cleanShutdown bool // is gone because it shut down in order
	evicting      bool // drains, and its tasks were preempted at its deadline
	shrunk        bool // offers less than its tasks hold
	constrained   string
	usedAttempts  map[muster.AttemptID]struct{} // not current, but it still has data of them: new attempts must not reuse their numbers
	seen          muster.Time                   // when it last sent something
	sessionStart  muster.Time                   // start of the session
	renewals      uint64                        // heartbeats so far
	load          *muster.Load
	health        healthRecord
	avoided       bool // as last published: its health closes it
	timer         queue.Timer
	dirty         bool
}

// newWorker makes a worker that is not part of the fleet yet.
func newWorker(row muster.Worker) *worker {
	w := &worker{row: row, gone: true}
	w.Owner, w.timer.Subject = w, w
	return w
}

// unused returns the first attempt number from n on that the worker has no data of.
func (w *worker) unused(t muster.TaskID, n int) int {
	for len(w.usedAttempts) > 0 {
		if _, used := w.usedAttempts[muster.AttemptID{Task: t, N: n}]; !used {
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
	ends := make([]placement.ExpectedRelease, len(w.held))
	for i, t := range w.held {
		ends[i].Grant = t.row.Grant
		if since > 0 && t.row.AssignedAt >= since {
			continue
		}
		in := now.Sub(t.row.AssignedAt)
		if sh := t.shape; sh.Ran > 0 && sh.Runtime/muster.Duration(sh.Ran) > in {
			in = sh.Runtime/muster.Duration(sh.Ran) - in
		}
		ends[i].In = in
	}
	return w.Usage.FreeIn(n, tasks, ends)
}

// reachable reports whether the worker is connected and responsive.
func (w *worker) reachable() bool { return w.connected && w.responsive }

// sortedTasks returns the worker's tasks by number.
func (w *worker) sortedTasks() []*task {
	list := slices.Clone(w.held)
	slices.SortFunc(list, byNumber)
	return list
}
