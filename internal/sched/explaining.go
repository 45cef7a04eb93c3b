package sched

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/place"
)

// Explain says why a live task stands where it stands. It returns a NotFound
// error for a task that is not known, or has ended. It changes nothing, and costs
// a look at every worker and at every queued task of at least its priority.
func (s *State) Explain(now muster.Time, id muster.TaskID) (Explanation, error) {
	ended := muster.Errorf(muster.NotFound, "task %s has ended, or never was: only a task that has not ended can be explained", id)
	j := s.jobs[id.Job]
	if j == nil {
		return Explanation{}, ended
	}
	g := j.group(id.Num)
	if g == nil {
		return Explanation{}, ended
	}
	x := Explanation{Task: id, State: g.row.Rest}
	t := g.tasks[id.Num-g.row.First]
	if t != nil {
		x.State = t.row.State
	}
	if x.State.Final() || t == nil && id.Num < g.row.First+g.row.Next {
		return Explanation{}, ended
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
		s.explainQueued(now, &x, question{need: s.shapeOf(g).need, line: lineKey{j.row.Priority, j.project}, task: t})
	default:
		x.Summary = explainHeld(t)
	}
	return x, nil
}

// Plan says where the first task of each stage of a normalized spec would run if
// it were submitted now.
func (s *State) Plan(now muster.Time, spec *muster.Spec) []Explanation {
	p := s.projects[spec.Project]
	if p == nil {
		p = &project{name: spec.Project}
	}
	list := make([]Explanation, len(spec.Tasks))
	for i := range spec.Tasks {
		t := &spec.Tasks[i]
		x := &list[i]
		*x = Explanation{Stage: t.Name, State: muster.Queued, Waiting: t.Needs}
		s.explainQueued(now, x, question{need: place.NewNeed(t), line: lineKey{priority(spec), p}, planned: true})
		if len(t.Needs) > 0 {
			x.State = muster.Waiting
			x.Summary = waitsFor(t.Needs) + "; then: " + x.Summary
			x.Ahead, x.Position, x.Start = 0, 0, 0
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
	need    *place.Need
	line    lineKey
	task    *task // nil for an element of a rest, and for a plan
	planned bool
}

// answer is what one worker says to the question.
type answer struct {
	worker *worker
	now    place.Filter
	ever   place.Filter
	shy    muster.Time // it rejected the task, and is not asked again before
}

func (s *State) explainQueued(now muster.Time, x *Explanation, q question) {
	answers := make([]answer, len(s.order))
	for i, w := range s.order {
		answers[i] = answer{worker: w, now: w.book.Fits(q.need), ever: w.book.Ever(q.need)}
		if q.task != nil {
			for _, a := range q.task.avoid {
				if a.worker == w && a.until > now {
					answers[i].shy = a.until
				}
			}
		}
	}
	slices.SortFunc(answers, func(a, b answer) int {
		return cmp.Or(cmp.Compare(b.nearness(), a.nearness()), strings.Compare(a.worker.row.Name, b.worker.row.Name), byID(a.worker, b.worker))
	})
	for i := range answers {
		if i == MaxVerdicts {
			x.More = len(answers) - MaxVerdicts
			break
		}
		x.Workers = append(x.Workers, answers[i].verdict(q.need))
	}
	s.countAhead(x, q)
	x.Summary = summarize(answers)
	x.Nearest = nearest(answers, q.need)
	if q.task != nil && q.task.row.NotBefore > now {
		x.NotUntil = q.task.row.NotBefore
		x.Summary = fmt.Sprintf("waits until %s before it is tried again (%s)", x.NotUntil, q.task.row.Message)
		x.Nearest = ""
	}
	x.Start = s.estimate(now, x, q)
}

// nearness orders workers: those that fit, those that could once they have room,
// those that never could; and among them those that fail a later filter.
func (a *answer) nearness() int {
	switch {
	case a.now == place.Fits && a.shy == 0:
		return 1000
	case a.ever == place.Fits:
		return 500 + int(a.now)
	default:
		return int(a.ever)
	}
}

func (a *answer) verdict(n *place.Need) Verdict {
	v := Verdict{Worker: a.worker.row.ID, Name: a.worker.row.Name}
	switch {
	case a.now == place.Fits && a.shy > 0:
		v.Filter, v.Why = "rejected", fmt.Sprintf("rejected it a moment ago, and is asked again at %s", a.shy)
	case a.now == place.Fits:
		v.Fits = true
	case a.ever == place.Fits:
		v.Filter, v.Why = a.now.String(), a.worker.book.Why(n, a.now)
	default: // what it lacks for good says more than what it lacks now
		v.Filter, v.Why = a.ever.String(), a.worker.book.Why(n, a.ever)
	}
	return v
}

func summarize(answers []answer) string {
	var fit, room, closed int
	lacks := map[place.Filter]int{}
	for i := range answers {
		switch a := &answers[i]; {
		case a.nearness() == 1000:
			fit++
		case a.ever != place.Fits:
			lacks[a.ever]++
		case a.now == place.State:
			closed++
		default:
			room++
		}
	}
	switch {
	case len(answers) == 0:
		return "no worker has joined"
	case fit > 0:
		return fmt.Sprintf("can start now: %s", workers(fit, "fits", "fit"))
	case room > 0:
		return fmt.Sprintf("waits for room: %s run it, but not now", workers(room, "could", "could"))
	case closed > 0:
		return fmt.Sprintf("waits for a worker: %s run it, but none of them takes tasks now", workers(closed, "could", "could"))
	}
	var parts []string
	for _, f := range place.Filters {
		if n := lacks[f]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d by %s", n, f))
		}
	}
	return "can never start with the workers there are: ruled out " + strings.Join(parts, ", ")
}

func workers(n int, one, many string) string {
	if n == 1 {
		return "1 worker " + one
	}
	return fmt.Sprintf("%d workers %s", n, many)
}

// nearest words the smallest change that would let the task start: of its
// request alone, or the passing of time on one worker.
func nearest(answers []answer, n *place.Need) string {
	if len(answers) == 0 {
		return "start a worker and let it join this server"
	}
	if answers[0].nearness() == 1000 {
		return ""
	}
	var change, wait string
	for i := range answers {
		a := &answers[i]
		b := a.worker.book
		never := a.ever != place.Fits
		f := a.now
		if never {
			f = a.ever
		}
		if wait == "" && !never {
			switch {
			case f == place.State:
				wait = fmt.Sprintf("worker %s %s: bring it back", a.worker.row.Name, b.Closed)
			case f.Capacity():
				wait = fmt.Sprintf("wait for worker %s to free %s", a.worker.row.Name, b.Lack(n, f))
			}
		}
		if change == "" {
			change = relaxed(b, n, f, never)
		}
		if change != "" && (wait != "" || never) {
			break
		}
	}
	switch {
	case change != "" && wait != "":
		return change + ", or " + wait
	case change+wait == "":
		return "no single change of the request would do: see what each worker lacks, or start a worker that fits"
	default:
		return change + wait
	}
}

// relaxed words a change of the request by which it would fit at once, or, if it
// never could, some day.
func relaxed(b *place.Book, n *place.Need, f place.Filter, never bool) string {
	c, what, ok := b.Relax(n, f, never)
	if !ok || never && b.Ever(c) != place.Fits || !never && b.Fits(c) != place.Fits {
		return ""
	}
	return what
}

// countAhead counts the queued tasks that go first: those of a higher priority, and
// the older ones of the same. Position counts those of the same project only.
func (s *State) countAhead(x *Explanation, q question) {
	x.Position = 1
	for _, l := range s.queue.lanes {
		if l.key.priority < q.line.priority {
			continue
		}
		for _, it := range l.items {
			n := it.size()
			if l.key.priority == q.line.priority && !q.planned {
				n = it.sizeBefore(x.Task)
			}
			x.Ahead += n
			if l.key.lineKey == q.line {
				x.Position += n
			}
		}
	}
}

// sizeBefore returns how many tasks of the item are older than the task id.
func (i *item) sizeBefore(id muster.TaskID) int {
	switch {
	case i.job != id.Job:
		if i.job < id.Job {
			return i.size()
		}
		return 0
	case i.task != nil:
		if i.num < id.Num {
			return 1
		}
		return 0
	}
	g := i.group
	n := min(id.Num-g.row.First, g.row.Size) - g.row.Next
	if g.ahead > 0 {
		for e := range g.tasks {
			if e >= g.row.Next && e < id.Num-g.row.First {
				n--
			}
		}
	}
	return max(n, 0)
}

// estimate tells when the task will start if tasks of its shape go on to take as
// long as they did, and as many of them run at once as now. It returns 0 without
// such history.
func (s *State) estimate(now muster.Time, x *Explanation, q question) muster.Time {
	sh := s.queue.shapes[q.need.Key()]
	if sh == nil || sh.ran == 0 || sh.held == 0 {
		return 0
	}
	each := sh.runtime / muster.Duration(sh.ran)
	rounds := (x.Position + sh.held - 1) / sh.held
	return max(now.Add(each*muster.Duration(rounds)), x.NotUntil)
}
