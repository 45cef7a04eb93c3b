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
	g := j.group(id.Num)
	if g == nil {
		return muster.Explanation{}, ended
	}
	x := muster.Explanation{Task: id, State: g.row.UnmaterializedState}
	t := g.tasks[id.Num-g.row.First]
	if t != nil {
		x.State = t.row.State
	}
	if x.State.Final() || t == nil && id.Num < g.row.First+g.row.Materialized {
		return muster.Explanation{}, ended
	}
	switch x.State {
	case muster.Waiting:
		for _, n := range g.needs {
			if !n.ended() {
				x.Waiting = append(x.Waiting, n.row.Name)
			}
		}
		x.Summary = waitingMessage(x.Waiting)
	case muster.Queued:
		if j.row.Held {
			x.Summary = fmt.Sprintf("is held: muster edit %s --release lets it start", j.row.ID)
			return x, nil
		}
		if g.atLimit() {
			x.Summary = fmt.Sprintf("waits until one of the %d tasks of its stage that run ends: its array allows no more at once", g.spec().Array.Limit)
			return x, nil
		}
		if t != nil && t.parked {
			x.Summary = "is looked up in the result cache"
			if other, ok := s.identical(t); ok {
				x.Summary = fmt.Sprintf("waits for the result of task %s, which is identical, and runs by itself if that fails", other.row.ID)
			}
			return x, nil
		}
		q := explainQuery{id: id, need: s.shapeOf(g).Need, priority: j.row.Priority, project: j.project}
		switch {
		case g.gang():
			if n := g.memberCounts(nil); n.Held > 0 {
				x.Summary = fmt.Sprintf("its gang restarts when its %d running tasks have stopped (%s)", n.Held, muster.Headline(t.row.Message))
				return x, nil
			}
			q.id.Num = g.row.First
			for _, m := range g.sortedTasks() {
				q.addTask(&m.row, m.avoid)
			}
		case t != nil:
			q.addTask(&t.row, t.avoid)
		}
		s.evaluate(&x, now, q)
	default:
		if t.awaitingGang() {
			x.Summary = fmt.Sprintf("has succeeded and waits for %d other tasks of its gang", g.memberCounts(t).Held)
			return x, nil
		}
		x.Summary = t.describe()
	}
	return x, nil
}

// Limits of a plan. Beyond them stages have only the summary, and beyond the first one not even that.
const (
	maxPlanNeeds    = 1_000  // different requirements of stages; each is compared with every worker
	maxPlanVerdicts = 10_000 // workers of all explanations
)

// Plan says where the first task of each stage of a normalized spec would run if
// the spec were submitted now. Stages with the same requirements are examined once.
func (s *State) Plan(now muster.Time, spec *muster.Spec) []muster.Explanation {
	list := make([]muster.Explanation, len(spec.Tasks))
	known := map[string]*muster.Explanation{} // by the key of the need
	verdicts := 0
	for i := range spec.Tasks {
		t := &spec.Tasks[i]
		need := s.limits.Need(spec.Project, t)
		found := known[need.Key()]
		switch {
		case found != nil:
		case len(known) == maxPlanNeeds:
			found = &muster.Explanation{State: muster.Queued, Summary: fmt.Sprintf("is not compared with the workers: the plan of a job has at most %d different requirements", maxPlanNeeds)}
		default:
			found = &muster.Explanation{State: muster.Queued}
			s.evaluate(found, now, explainQuery{id: muster.TaskID{Job: s.nextJob}, need: need, priority: priority(spec), project: s.projects[spec.Project]})
			known[need.Key()] = found
		}
		x := &list[i]
		*x = *found
		x.Stage, x.Waiting = t.Name, t.Needs
		if verdicts += len(x.Workers); verdicts > maxPlanVerdicts {
			x.More, x.Workers = x.More+len(x.Workers), nil
		}
		if len(t.Needs) > 0 {
			x.State = muster.Waiting
			x.Summary = waitingMessage(t.Needs) + "; then: " + x.Summary
			if t.DynamicArray() {
				x.Summary = fmt.Sprintf("its number of tasks is not known yet: %s; ", t.Array) + x.Summary
			}
			x.Ahead, x.Position, x.Start, x.AheadTruncated = 0, 0, 0, false
		}
	}
	return list
}

// maxVerdicts limits the workers of an Explanation.
const maxVerdicts = 50

// maxDeparted limits the workers that have left and are named because no other one could run the task.
const maxDeparted = 5

// explainQuery describes the queued task to explain.
type explainQuery struct {
	id       muster.TaskID // its id in the queue; in a plan: as if it were submitted now
	need     *placement.Need
	priority int
	project  *queue.Project // nil if it has no live job

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

// evaluate fills in the verdicts of the queue and of the workers. It names those that have left only if no other one could run the task.
func (s *State) evaluate(x *muster.Explanation, now muster.Time, q explainQuery) {
	evals := make([]placement.Evaluation, 0, len(s.workers))
	var departed []placement.Evaluation
	capable := false
	shape, reserved := s.queue.LookupShape(q.need), []string(nil)
	for _, w := range s.workers {
		a := placement.Evaluate(w.Usage, q.need)
		if w.gone {
			if a.Empty == placement.Fits && q.need.Gang == 0 && len(departed) < maxDeparted {
				departed = append(departed, a)
			}
			continue
		}
		capable = capable || a.Empty == placement.Fits
		if it, blocked := s.queue.ReservedFor(now, &w.Worker, shape, q.priority); it != nil {
			switch holder := (muster.TaskID{Job: it.Job, Num: it.Num}); {
			case holder == q.id:
				reserved = append(reserved, w.Usage.Worker.Name)
			case blocked:
				a.ReservedFor = holder.String()
			}
		}
		avoidance := q.avoid.ForWorker(&w.Worker, now)
		a.AvoidedUntil, a.Failed, a.Message = avoidance.Until, avoidance.Failed, avoidance.Message
		evals = append(evals, a)
	}
	x.Summary = placement.Summarize(evals)
	if !capable {
		x.Summary = placement.Departed(x.Summary, departed)
		evals = append(evals, departed...)
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
	x.Ahead, own, exact = s.queue.CountAhead(q.priority, q.project, q.id.Job, q.id.Num)
	x.Position, x.AheadTruncated = own+1, !exact
	switch len(reserved) {
	case 0:
	case 1:
		x.Summary += "; worker " + reserved[0] + " is reserved for it"
	default:
		x.Summary += fmt.Sprintf("; %d workers are reserved for it", len(reserved))
	}
	x.Nearest = placement.Nearest(evals)
	if q.notBefore > now {
		x.NotUntil = q.notBefore
		x.Summary = fmt.Sprintf("%s; it is retried after %s", cmp.Or(muster.Headline(q.message), "its last attempt failed"), x.NotUntil)
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

// describe describes the state of a held task.
func (t *task) describe() string {
	var s string
	w := &t.worker.row
	switch t.row.State {
	case muster.Assigned:
		s = fmt.Sprintf("offered to worker %s, which has not started it yet", w.Name)
		if t.row.Step != "" {
			s = fmt.Sprintf("worker %s is preparing it: %s", w.Name, t.row.Step)
		}
	case muster.Running:
		s = fmt.Sprintf("runs on worker %s since %s", w.Name, t.row.StartedAt)
		if lacks := muster.Limitations(w.UnsupportedFeatures); len(lacks) > 0 {
			s += "; its worker " + strings.Join(lacks, "; its worker ")
		}
	default:
		s = fmt.Sprintf("is being stopped on worker %s, until %s at the latest", w.Name, t.stopBy)
	}
	switch t.preemptReason {
	case muster.NoReason:
	case muster.GangMember:
		s += "; it is being stopped because another task of its gang has ended"
	default:
		s += fmt.Sprintf("; it is being preempted (%s) and will run elsewhere", t.preemptReason)
	}
	if at := t.leaseExpiry(); at > 0 {
		s += fmt.Sprintf("; the worker is unreachable; the attempt is lost at %s unless the worker reconnects", at)
	}
	return s
}
