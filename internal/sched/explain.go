package sched

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/placement"
	"github.com/muster-dev/muster/internal/sched/queue"
)

// Explain says why a live task is in its state. It returns a NotFound error for a
// task that is unknown or has ended. It changes nothing, and examines every worker
// and at most about ten thousand queued tasks.
func (s *State) Explain(now muster.Time, id muster.TaskID) (muster.Explanation, error) {
	ended := muster.Errorf(muster.NotFound, "task %s has ended or does not exist: only an unfinished task can be explained", id)
	j := s.jobs[id.Job]
	if j == nil {
		return muster.Explanation{}, ended
	}
	g := j.Group(id.Num)
	if g == nil {
		return muster.Explanation{}, ended
	}
	x := muster.Explanation{Task: id, State: g.Row.UnmaterializedState}
	t := g.Tasks[id.Num-g.Row.First]
	if t != nil {
		x.State = t.Row.State
	}
	if x.State.Final() || t == nil && id.Num < g.Row.First+g.Row.Materialized {
		return muster.Explanation{}, ended
	}
	switch x.State {
	case muster.Waiting:
		for _, n := range g.Needs {
			if !n.Succeeded() {
				x.Waiting = append(x.Waiting, n.Row.Name)
			}
		}
		x.Summary = waitingMessage(x.Waiting)
	case muster.Queued:
		q := explainQuery{ID: id, Need: s.shapeOf(g).Need, Priority: j.Row.Priority, Project: j.Project}
		switch {
		case g.Gang():
			if n := g.MemberCounts(nil); n.Held > 0 {
				x.Summary = gangRestartMessage(&t.Row, n.Held)
				return x, nil
			}
			q.ID.Num = g.Row.First
			for _, m := range g.SortedTasks() {
				q.addTask(&m.Row, m.Avoid)
			}
		case t != nil:
			q.addTask(&t.Row, t.Avoid)
		}
		evaluate(&x, now, q, s.queue, s.presentWorkers())
	default:
		if t.AwaitingGang() {
			n := g.MemberCounts(t)
			x.Summary = gangWaitMessage(n.Held)
			return x, nil
		}
		h := assignment{Worker: t.Worker.Row.Name, PreemptReason: t.PreemptReason, StopBy: t.StopBy, LeaseExpiry: t.LeaseExpiry(), Lacks: t.Worker.Row.UnsupportedFeatures}
		x.Summary = h.Describe(&t.Row)
	}
	return x, nil
}

// Plan says where the first task of each stage of a normalized spec would run if
// the spec were submitted now.
func (s *State) Plan(now muster.Time, spec *muster.Spec) []muster.Explanation {
	list := make([]muster.Explanation, len(spec.Tasks))
	for i := range spec.Tasks {
		t := &spec.Tasks[i]
		x := &list[i]
		*x = muster.Explanation{Stage: t.Name, State: muster.Queued, Waiting: t.Needs}
		evaluate(x, now, explainQuery{
			ID: muster.TaskID{Job: s.nextJob}, Need: s.limits.Need(spec.Project, t), Priority: priority(spec), Project: s.projects[spec.Project],
		}, s.queue, s.presentWorkers())
		if len(t.Needs) > 0 {
			x.State = muster.Waiting
			x.Summary = waitingMessage(t.Needs) + "; then: " + x.Summary
			x.Ahead, x.Position, x.Start, x.AheadTruncated = 0, 0, 0, false
		}
	}
	return list
}

// presentWorkers returns the workers that have not left.
func (s *State) presentWorkers() []*queue.Worker {
	list := make([]*queue.Worker, 0, len(s.workers))
	for _, w := range s.workers {
		if !w.Gone {
			list = append(list, &w.Worker)
		}
	}
	return list
}

// maxVerdicts limits the workers of an Explanation.
const maxVerdicts = 50

// explainQuery describes the queued task to explain.
type explainQuery struct {
	ID       muster.TaskID // its id in the queue; in a plan: as if it were submitted now
	Need     *placement.Need
	Priority int
	Project  *queue.Project // nil if it has no live job

	// Of a task that has a row, or of all members of a gang:
	avoid     queue.AvoidList
	notBefore muster.Time
	message   string // why it waits until then
}

// addTask adds the avoided workers and the backoff of a row.
func (q *explainQuery) addTask(t *muster.Task, avoid queue.AvoidList) {
	q.avoid = append(q.avoid, avoid...)
	if t.NotBefore > q.notBefore {
		q.notBefore, q.message = t.NotBefore, t.Message
	}
}

// evaluate fills in the verdicts of the queue and the workers.
func evaluate(x *muster.Explanation, now muster.Time, q explainQuery, tasks *queue.Queue, workers []*queue.Worker) {
	evals := make([]placement.Evaluation, 0, len(workers))
	shape, reserved := tasks.LookupShape(q.Need), []string(nil)
	for _, w := range workers {
		a := placement.Evaluate(w.Usage, q.Need)
		if it, blocked := tasks.ReservedFor(now, w, shape, q.Priority); it != nil {
			switch holder := (muster.TaskID{Job: it.Job, Num: it.Num}); {
			case holder == q.ID:
				reserved = append(reserved, w.Usage.Worker.Name)
			case blocked:
				a.ReservedFor = holder.String()
			}
		}
		avoidance := q.avoid.ForWorker(w, now)
		a.AvoidedUntil, a.Failed, a.Message = avoidance.Until, avoidance.Failed, avoidance.Message
		evals = append(evals, a)
	}
	placement.SortEvaluations(evals)
	for i := range evals {
		if i == maxVerdicts {
			x.More = len(evals) - maxVerdicts
			break
		}
		a := &evals[i]
		filter, reason := a.Explain()
		x.Workers = append(x.Workers, muster.Verdict{Worker: a.Usage.Worker.ID, Name: a.Usage.Worker.Name, Fits: filter == "", Filter: filter, Why: reason})
	}
	var own int
	var exact bool
	x.Ahead, own, exact = tasks.CountAhead(q.Priority, q.Project, q.ID.Job, q.ID.Num)
	x.Position, x.AheadTruncated = own+1, !exact
	x.Summary = placement.Summarize(evals)
	switch len(reserved) {
	case 0:
	case 1:
		x.Summary += "; worker " + reserved[0] + " is kept free for it"
	default:
		x.Summary += fmt.Sprintf("; %d workers are kept free for it", len(reserved))
	}
	x.Nearest = placement.Nearest(evals)
	if q.notBefore > now {
		x.NotUntil = q.notBefore
		x.Summary = fmt.Sprintf("%s; it is retried after %s", cmp.Or(q.message, "its last attempt failed"), x.NotUntil)
		x.Nearest = ""
	}
	x.Start = estimateStart(x, now, shape)
}

// estimateStart returns when the task will start if tasks of its shape keep taking as long
// as they did, and as many of them run at once as now. It returns 0 without such
// history, and in a queue too long to count.
func estimateStart(x *muster.Explanation, now muster.Time, sh *queue.Shape) muster.Time {
	if sh == nil || sh.Ran == 0 || sh.Held == 0 || x.AheadTruncated {
		return 0
	}
	each := sh.Runtime / muster.Duration(sh.Ran)
	rounds := (x.Position + sh.Held - 1) / sh.Held
	return max(now.Add(each*muster.Duration(rounds)), x.NotUntil)
}

// waitingMessage says which stages a task waits for.
func waitingMessage(stages []string) string {
	if len(stages) == 1 {
		return "waits for stage " + stages[0] + " to succeed"
	}
	return "waits for the stages " + strings.Join(stages, ", ") + " to succeed"
}

// assignment is how a worker holds a task.
type assignment struct {
	Worker        string        // its name
	PreemptReason muster.Reason // why it is being preempted, or NoReason
	StopBy        muster.Time   // when a stopped attempt is abandoned
	LeaseExpiry   muster.Time   // when the attempt is lost because the worker is unreachable, or 0
	Lacks         []string      // features of muster.RunFeatures that the worker lacks
}

// Describe describes the state of a held task.
func (h *assignment) Describe(t *muster.Task) string {
	var s string
	switch t.State {
	case muster.Assigned:
		s = fmt.Sprintf("offered to worker %s, which has not started it yet", h.Worker)
		if t.Step != "" {
			s = fmt.Sprintf("worker %s is preparing it: %s", h.Worker, t.Step)
		}
	case muster.Running:
		s = fmt.Sprintf("runs on worker %s since %s", h.Worker, t.StartedAt)
		if lacks := muster.Limitations(h.Lacks); len(lacks) > 0 {
			s += "; its worker " + strings.Join(lacks, "; its worker ")
		}
	default:
		s = fmt.Sprintf("is being stopped on worker %s, until %s at the latest", h.Worker, h.StopBy)
	}
	switch h.PreemptReason {
	case muster.NoReason:
	case muster.GangMember:
		s += "; it is being stopped because another task of its gang has ended"
	default:
		s += fmt.Sprintf("; it is being preempted (%s) and will run elsewhere", h.PreemptReason)
	}
	if h.LeaseExpiry > 0 {
		s += fmt.Sprintf("; the worker is unreachable; the attempt is lost at %s unless the worker reconnects", h.LeaseExpiry)
	}
	return s
}

// gangWaitMessage describes a gang member that is done before so many others.
func gangWaitMessage(others int) string {
	return fmt.Sprintf("has succeeded and waits for %d other tasks of its gang", others)
}

// gangRestartMessage describes a queued gang member whose gang still has so many running tasks.
func gangRestartMessage(t *muster.Task, held int) string {
	return fmt.Sprintf("its gang restarts when its %d running tasks have stopped (%s)", held, t.Message)
}
