package sched

import (
	"fmt"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/place"
	"github.com/muster-dev/muster/internal/sched/explain"
	"github.com/muster-dev/muster/internal/sched/queue"
)

// Explain says why a live task stands where it stands. It returns a NotFound
// error for a task that is not known, or has ended. It changes nothing, and costs
// a look at every worker and at some ten thousand queued tasks at the most.
func (s *State) Explain(now muster.Time, id muster.TaskID) (explain.Explanation, error) {
	ended := muster.Errorf(muster.NotFound, "task %s has ended, or never was: only a task that has not ended can be explained", id)
	j := s.jobs[id.Job]
	if j == nil {
		return explain.Explanation{}, ended
	}
	g := j.group(id.Num)
	if g == nil {
		return explain.Explanation{}, ended
	}
	x := explain.Explanation{Task: id, State: g.row.Rest}
	t := g.tasks[id.Num-g.row.First]
	if t != nil {
		x.State = t.row.State
	}
	if x.State.Final() || t == nil && id.Num < g.row.First+g.row.Next {
		return explain.Explanation{}, ended
	}
	switch x.State {
	case muster.Waiting:
		for _, n := range g.needs {
			if !n.succeeded() {
				x.Waiting = append(x.Waiting, n.row.Name)
			}
		}
		x.Summary = waitsFor(x.Waiting)
	case muster.Queued:
		s.explainQueued(now, &x, question{id: id, need: s.shapeOf(g).Need, priority: j.row.Priority, project: j.project, task: t})
	default:
		x.Summary = explainHeld(t)
	}
	return x, nil
}

// Plan says where the first task of each stage of a normalized spec would run if
// it were submitted now.
func (s *State) Plan(now muster.Time, spec *muster.Spec) []explain.Explanation {
	list := make([]explain.Explanation, len(spec.Tasks))
	for i := range spec.Tasks {
		t := &spec.Tasks[i]
		x := &list[i]
		*x = explain.Explanation{Stage: t.Name, State: muster.Queued, Waiting: t.Needs}
		s.explainQueued(now, x, question{
			id: muster.TaskID{Job: s.next}, need: place.NewNeed(t), priority: priority(spec), project: s.projects[spec.Project],
		})
		if len(t.Needs) > 0 {
			x.State = muster.Waiting
			x.Summary = waitsFor(t.Needs) + "; then: " + x.Summary
			x.Ahead, x.Position, x.Start, x.Beyond = 0, 0, 0, false
		}
	}
	return list
}

func waitsFor(stages []string) string {
	if len(stages) == 1 {
		return "waits for stage " + stages[0] + " to succeed"
	}
	return "waits for the stages " + strings.Join(stages, ", ") + " to succeed"
}

func explainHeld(t *task) string {
	w := t.worker
	var s string
	switch t.row.State {
	case muster.Assigned:
		s = fmt.Sprintf("offered to worker %s, which has not started it yet", w.row.Name)
	case muster.Running:
		s = fmt.Sprintf("runs on worker %s since %s", w.row.Name, t.row.StartedAt)
		if t.room != muster.NoReason {
			s += fmt.Sprintf("; it was told to make room (%s), and goes on elsewhere", t.room)
		}
	default:
		s = fmt.Sprintf("is being stopped on worker %s; that ends by %s at the latest", w.row.Name, t.stopBy)
	}
	if at := t.lease(); at > 0 {
		s += fmt.Sprintf("; the worker is unreachable, and the attempt is given up at %s unless it comes back", at)
	}
	return s
}

// question is what an explanation of a queued task is about.
type question struct {
	id       muster.TaskID // in a plan: as if it were submitted now
	need     *place.Need
	priority int
	project  *queue.Project // nil if it has no live job
	task     *task          // nil for an element of a rest, and for a plan
}

func (s *State) explainQueued(now muster.Time, x *explain.Explanation, q question) {
	answers := make([]place.Answer, 0, len(s.order))
	shape, kept := s.queue.Known(q.need), ""
	for _, w := range s.order {
		if w.gone {
			continue // it has left: what it lacks is beside the point
		}
		a := place.Ask(w.Book, q.need)
		if it, barred := s.queue.KeptFor(now, &w.Worker, shape, q.priority); it != nil {
			switch whom := (muster.TaskID{Job: it.Job, Num: it.Num}); {
			case whom == q.id:
				kept = "; worker " + w.row.Name + " is kept free for it"
			case barred:
				a.Kept = whom.String()
			}
		}
		if q.task != nil {
			for _, v := range stillAvoided(q.task.avoid, now) {
				if v.worker == w {
					a.Rejected = v.until
				}
			}
		}
		answers = append(answers, a)
	}
	place.SortAnswers(answers)
	for i := range answers {
		if i == explain.MaxVerdicts {
			x.More = len(answers) - explain.MaxVerdicts
			break
		}
		a := &answers[i]
		filter, why := a.Why()
		x.Workers = append(x.Workers, explain.Verdict{Worker: a.Book.Worker.ID, Name: a.Book.Worker.Name, Fits: filter == "", Filter: filter, Why: why})
	}
	var own int
	var exact bool
	x.Ahead, own, exact = s.queue.Ahead(q.priority, q.project, q.id.Job, q.id.Num)
	x.Position, x.Beyond = own+1, !exact
	x.Summary = place.Summarize(answers) + kept
	x.Nearest = place.Nearest(answers)
	if q.task != nil && q.task.row.NotBefore > now {
		x.NotUntil = q.task.row.NotBefore
		x.Summary = fmt.Sprintf("waits until %s before it is tried again (%s)", x.NotUntil, q.task.row.Message)
		x.Nearest = ""
	}
	x.Start = s.estimate(now, x, q)
}

// estimate tells when the task will start if tasks of its shape go on to take as
// long as they did, and as many of them run at once as now. It returns 0 without
// such history, and in a queue too long to count.
func (s *State) estimate(now muster.Time, x *explain.Explanation, q question) muster.Time {
	sh := s.queue.Known(q.need)
	if sh == nil || sh.Ran == 0 || sh.Held == 0 || x.Beyond {
		return 0
	}
	each := sh.Runtime / muster.Duration(sh.Ran)
	rounds := (x.Position + sh.Held - 1) / sh.Held
	return max(now.Add(each*muster.Duration(rounds)), x.NotUntil)
}
