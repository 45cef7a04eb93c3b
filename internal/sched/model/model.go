package model

import (
	"cmp"
	"slices"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/placement"
	"github.com/muster-dev/muster/internal/sched/effect"
	"github.com/muster-dev/muster/internal/sched/fleet"
	"github.com/muster-dev/muster/internal/sched/health"
	"github.com/muster-dev/muster/internal/sched/heap"
	"github.com/muster-dev/muster/internal/sched/queue"
)

// Job is a live job: one with a task that is not final.
type Job struct {
	Row       muster.Job // Groups and Progress are left out
	Groups    []*Group
	Order     []*Group // every group after those that it needs
	Project   *queue.Project
	Stats     *fleet.ProjectStats // of the project
	Failures  int                 // failed attempts; see sched/fleet.Job
	SpecDirty bool                // no row of it was taken yet: the spec goes along
	Dirty     bool
	Touched   bool // its counts changed since the last settle
}

// Group is a live job's stage.
type Group struct {
	Row        muster.Group
	Job        *Job
	Needs      []*Group
	Dependents []*Group      // groups that need this one
	Tasks      map[int]*Task // by element: not final, or kept, or singled out before Next came by
	outOfOrder int           // of tasks, those from Next on
	Item       queue.Item    // the place of the rest in the queue
	Timer      heap.Timer
	Inputs     []effect.Input // known once the group was ready
	Dirty      bool
	Touched    bool         // a need of others may be met or missed since the last settle
	Shape      *queue.Shape // of its tasks, once one of them was queued; the queue may forget it
}

// Spec returns what the group's tasks have in common, with stage references
// resolved once it was ready.
func (g *Group) Spec() *muster.TaskSpec {
	if g.Row.Resolved != nil {
		return g.Row.Resolved
	}
	return &g.Job.Row.Spec.Tasks[g.Row.Index]
}

// Size makes the rest, or the gang, an owner of its place in the queue.
func (g *Group) Size() int {
	if g.Gang() {
		return g.Row.Size
	}
	return g.Unmaterialized()
}

// CountBelow returns how many of the rest have a lower number.
func (g *Group) CountBelow(num int) int {
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
func (g *Group) Unmaterialized() int { return g.Row.Size - g.Row.Materialized - g.outOfOrder }

// Unsuccessful returns how many tasks ended without success.
func (g *Group) Unsuccessful() int64 { return g.Row.Counts.Finished() - g.Row.Counts[muster.Succeeded] }

// Succeeded reports whether all tasks did.
func (g *Group) Succeeded() bool { return g.Row.Counts[muster.Succeeded] == int64(g.Row.Size) }

// SortedTasks returns the group's tasks in memory by number.
func (g *Group) SortedTasks() []*Task {
	list := make([]*Task, 0, len(g.Tasks))
	for _, t := range g.Tasks {
		list = append(list, t)
	}
	slices.SortFunc(list, byNumber)
	return list
}

// Task is a task with a row of its own.
type Task struct {
	Row            muster.Task
	Group          *Group
	Item           queue.Item // its place in the queue
	Timer          heap.Timer
	Dirty          bool
	StoredProgress *ProgressSnapshot // what its written row says of its progress, where Row is newer; else nil

	// While a worker holds it:
	Worker        *Worker
	Shape         *queue.Shape
	HeldIndex     int           // position in Worker.Held
	Accepted      bool          // the worker said so
	LastRenewal   uint64        // the last of Worker.Renewals that listed it
	StopBy        muster.Time   // when it is given up if it does not end
	PreemptReason muster.Reason // why it was told to make room, though nobody cancelled it; or NoReason

	Rejections int             // in a row
	Avoid      queue.AvoidList // workers that rejected it a moment ago, or failed it
	FailedOn   []*Worker       // workers on which attempts failed by the fleet's fault; see sched.State.crashLimit
}

// ProgressSnapshot is what a task's row says of its progress.
type ProgressSnapshot struct {
	Progress *float64
	Step     string
	Metrics  map[string]float64
}

// Size makes the task an owner of its place in the queue.
func (t *Task) Size() int { return 1 }

// CountBelow reports whether the task has a lower number, as a count.
func (t *Task) CountBelow(num int) int {
	if t.Row.ID.Num < num {
		return 1
	}
	return 0
}

// Attempt returns the id of the current attempt, or of the last one.
func (t *Task) Attempt() muster.AttemptID { return muster.AttemptID{Task: t.Row.ID, N: t.Row.Attempt} }

// Element returns the position in the group.
func (t *Task) Element() int { return t.Row.ID.Num - t.Group.Row.First }

// RecordRuntime notes for how long the task ran that ended well.
func (t *Task) RecordRuntime(end muster.Time) {
	if t.Row.StartedAt > 0 {
		t.Shape.Ran++
		t.Shape.Runtime += end.Sub(t.Row.StartedAt)
	}
}

func byNumber(a, b *Task) int {
	return cmp.Or(cmp.Compare(a.Row.ID.Job, b.Row.ID.Job), cmp.Compare(a.Row.ID.Num, b.Row.ID.Num))
}

// Worker is a worker that is known, connected or not.
type Worker struct {
	queue.Worker

	Row           muster.Worker // Free, Running and Load are made when asked for
	Held          []*Task
	Connected     bool // has a session
	Responsive    bool // and was heard within sched.Config.Silent
	Gone          bool
	DrainSent     bool // was told to go
	CleanShutdown bool // is gone because it shut down in order
	Evicting      bool // drains, and what it still held at its deadline was told to make room
	Shrunk        bool // came back with less than it held
	Constrained   string
	UsedAttempts  map[muster.AttemptID]struct{} // attempts that are not current of which it has something left: no new one may get their numbers
	Seen          muster.Time                   // last sign of life
	SessionStart  muster.Time                   // start of the session
	Renewals      uint64                        // heartbeats so far
	Load          *muster.Load
	Health        health.Record
	Avoided       bool // as was said last: Health closes it
	Timer         heap.Timer
	Dirty         bool
}

// NewWorker makes a worker that is no part of the fleet yet.
func NewWorker(row muster.Worker) *Worker {
	w := &Worker{Row: row, Gone: true}
	w.Owner, w.Timer.Subject = w, w
	return w
}

// Unused returns the first attempt number from n on that the worker knows no other attempt of the task by.
func (w *Worker) Unused(t muster.TaskID, n int) int {
	for len(w.UsedAttempts) > 0 {
		if _, used := w.UsedAttempts[muster.AttemptID{Task: t, N: n}]; !used {
			break
		}
		n++
	}
	return n
}

// FreeIn guesses in how long the worker will have room for so many tasks with need
// n: each task that it holds runs as long as those of its shape did, or, if it has
// run longer, once more as long as it did already. Unless since is 0, it leaves out
// what was assigned since then.
func (w *Worker) FreeIn(now muster.Time, n *placement.Need, tasks int, since muster.Time) muster.Duration {
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

// Reachable reports whether the worker is there.
func (w *Worker) Reachable() bool { return w.Connected && w.Responsive }

// SortedTasks returns what the worker holds, by number.
func (w *Worker) SortedTasks() []*Task {
	list := slices.Clone(w.Held)
	slices.SortFunc(list, byNumber)
	return list
}
