package sched

import (
	"cmp"
	"slices"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/place"
	"github.com/muster-dev/muster/internal/sched/effect"
	"github.com/muster-dev/muster/internal/sched/heap"
	"github.com/muster-dev/muster/internal/sched/queue"
)

// job is a live job: one with a task that is not final.
type job struct {
	row     muster.Job // Groups and Progress are left out
	groups  []*group
	order   []*group // every group after those that it needs
	project *queue.Project
	fresh   bool // no row of it was taken yet: the spec goes along
	dirty   bool
	touched bool // its counts changed since the last settle
}

// group is a live job's stage.
type group struct {
	row     muster.Group
	job     *job
	needs   []*group
	readers []*group      // groups that need this one
	tasks   map[int]*task // by element: not final, or kept, or singled out before Next came by
	ahead   int           // of tasks, those from Next on
	item    queue.Item    // the place of the rest in the queue
	timer   heap.Timer
	inputs  []effect.Input // known once the group was ready
	dirty   bool
	touched bool         // a need of others may be met or missed since the last settle
	shape   *queue.Shape // of its tasks, once one of them was queued: see shapeOf
}

// spec returns what the group's tasks have in common, with stage references
// resolved once it was ready.
func (g *group) spec() *muster.TaskSpec {
	if g.row.Resolved != nil {
		return g.row.Resolved
	}
	return &g.job.row.Spec.Tasks[g.row.Index]
}

// Size makes the rest, or the gang, an owner of its place in the queue.
func (g *group) Size() int {
	if g.gang() {
		return g.row.Size
	}
	return g.rest()
}

// Below returns how many of the rest have a lower number.
func (g *group) Below(num int) int {
	end := min(num-g.row.First, g.row.Size)
	if g.gang() {
		return max(end, 0)
	}
	n := max(end-g.row.Next, 0)
	if g.ahead > 0 && n > 0 {
		for e := range g.tasks {
			if e >= g.row.Next && e < end {
				n--
			}
		}
	}
	return n
}

// rest returns how many elements have no row of their own.
func (g *group) rest() int { return g.row.Size - g.row.Next - g.ahead }

// missed returns how many tasks ended without success.
func (g *group) missed() int64 { return g.row.Counts.Finished() - g.row.Counts[muster.Succeeded] }

// succeeded reports whether all tasks did.
func (g *group) succeeded() bool { return g.row.Counts[muster.Succeeded] == int64(g.row.Size) }

// elements returns the group's tasks in memory by number.
func (g *group) elements() []*task {
	list := make([]*task, 0, len(g.tasks))
	for _, t := range g.tasks {
		list = append(list, t)
	}
	slices.SortFunc(list, byNumber)
	return list
}

// task is a task with a row of its own.
type task struct {
	row   muster.Task
	group *group
	item  queue.Item // its place in the queue
	timer heap.Timer
	dirty bool

	// While a worker holds it:
	worker   *worker
	shape    *queue.Shape
	at       int           // position in worker.held
	accepted bool          // the worker said so
	stopBy   muster.Time   // when it is given up if it does not end
	room     muster.Reason // why it was told to make room, though nobody cancelled it; or NoReason

	rejections int           // in a row
	avoid      queue.Shunned // workers that rejected it a moment ago, or failed it
}

// Size makes the task an owner of its place in the queue.
func (t *task) Size() int { return 1 }

// Below reports whether the task has a lower number, as a count.
func (t *task) Below(num int) int {
	if t.row.ID.Num < num {
		return 1
	}
	return 0
}

func (t *task) attempt() muster.AttemptID { return muster.AttemptID{Task: t.row.ID, N: t.row.Attempt} }

// element returns the position in the group.
func (t *task) element() int { return t.row.ID.Num - t.group.row.First }

func byNumber(a, b *task) int {
	return cmp.Or(cmp.Compare(a.row.ID.Job, b.row.ID.Job), cmp.Compare(a.row.ID.Num, b.row.ID.Num))
}

// worker is a worker that is known, connected or not.
type worker struct {
	queue.Worker

	row         muster.Worker // Free, Running and Load are made when asked for
	held        []*task
	connected   bool // has a session
	heard       bool // and was heard within Config.Silent
	gone        bool
	leaving     bool // was told to go
	clearing    bool // drains, and what it still held at its deadline was told to make room
	shrunk      bool // came back with less than it held
	constrained string
	seen        muster.Time // last sign of life
	joined      muster.Time // start of the session
	load        *muster.Load
	timer       heap.Timer
	dirty       bool
}

// newWorker makes a worker that is no part of the fleet yet.
func newWorker(row muster.Worker) *worker {
	w := &worker{row: row, gone: true}
	w.Owner, w.timer.Of = w, w
	return w
}

// FreeIn guesses in how long the worker will have room for so many tasks with need
// n: each task that it holds runs as long as those of its shape did, or, if it has
// run longer, once more as long as it did already. Unless since is 0, it leaves out
// what was assigned since then.
func (w *worker) FreeIn(now muster.Time, n *place.Need, tasks int, since muster.Time) muster.Duration {
	ends := make([]place.End, len(w.held))
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
	return w.Book.FreeIn(n, tasks, ends)
}

// reachable reports whether the worker is there.
func (w *worker) reachable() bool { return w.connected && w.heard }

// tasks returns what the worker holds, by number.
func (w *worker) tasks() []*task {
	list := slices.Clone(w.held)
	slices.SortFunc(list, byNumber)
	return list
}

func byID(a, b *worker) int { return strings.Compare(string(a.row.ID), string(b.row.ID)) }

// find returns the position of id among the workers, and whether it is there.
func (s *State) find(id muster.WorkerID) (int, bool) {
	return slices.BinarySearchFunc(s.order, id, func(w *worker, id muster.WorkerID) int {
		return strings.Compare(string(w.row.ID), string(id))
	})
}
