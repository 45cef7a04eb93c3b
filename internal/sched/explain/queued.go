package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/placement"
	"github.com/muster-dev/muster/internal/sched/queue"
)

// Query is what an explanation of a queued task is about.
type Query struct {
	ID       muster.TaskID // by which it stands in the queue; in a plan: as if it were submitted now
	Need     *placement.Need
	Priority int
	Project  *queue.Project // nil if it has no live job

	// Of an element that has a row, and of all of a gang:
	avoid     queue.AvoidList
	notBefore muster.Time
	message   string // why it waits until then
}

// AddTask adds what is known of a row: whom it avoids, and until when it waits.
func (q *Query) AddTask(t *muster.Task, avoid queue.AvoidList) {
	q.avoid = append(q.avoid, avoid...)
	if t.NotBefore > q.notBefore {
		q.notBefore, q.message = t.NotBefore, t.Message
	}
}

// Evaluate fills in what the queue and the workers say to a question.
func (x *Explanation) Evaluate(now muster.Time, q Query, tasks *queue.Queue, workers []*queue.Worker) {
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
		if i == MaxVerdicts {
			x.More = len(evals) - MaxVerdicts
			break
		}
		a := &evals[i]
		filter, reason := a.Explain()
		x.Workers = append(x.Workers, Verdict{Worker: a.Usage.Worker.ID, Name: a.Usage.Worker.Name, Fits: filter == "", Filter: filter, Why: reason})
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
		x.Summary = fmt.Sprintf("%s; it is tried again after %s", cmp.Or(q.message, "its last attempt failed"), x.NotUntil)
		x.Nearest = ""
	}
	x.Start = x.estimate(now, shape)
}

// estimate tells when the task will start if tasks of its shape go on to take as
// long as they did, and as many of them run at once as now. It returns 0 without
// such history, and in a queue too long to count.
func (x *Explanation) estimate(now muster.Time, sh *queue.Shape) muster.Time {
	if sh == nil || sh.Ran == 0 || sh.Held == 0 || x.AheadTruncated {
		return 0
	}
	each := sh.Runtime / muster.Duration(sh.Ran)
	rounds := (x.Position + sh.Held - 1) / sh.Held
	return max(now.Add(each*muster.Duration(rounds)), x.NotUntil)
}

// WaitingMessage words which stages a task waits for.
func WaitingMessage(stages []string) string {
	if len(stages) == 1 {
		return "waits for stage " + stages[0] + " to succeed"
	}
	return "waits for the stages " + strings.Join(stages, ", ") + " to succeed"
}

// Assignment is how a worker holds a task.
type Assignment struct {
	Worker        string        // its name
	PreemptReason muster.Reason // why it was told to make room, or NoReason
	StopBy        muster.Time   // when it is given up if it does not end, once it was told to
	LeaseExpiry   muster.Time   // when it is given up because the worker is away, or 0
	Lacks         []string      // what the worker cannot do, of muster.RunFeatures
}

// Describe words how a held task stands.
func (h *Assignment) Describe(t *muster.Task) string {
	var s string
	switch t.State {
	case muster.Assigned:
		s = fmt.Sprintf("offered to worker %s, which has not started it yet", h.Worker)
		if t.Step != "" {
			s = fmt.Sprintf("worker %s prepares it: %s", h.Worker, t.Step)
		}
	case muster.Running:
		s = fmt.Sprintf("runs on worker %s since %s", h.Worker, t.StartedAt)
		if lacks := Limitations(h.Lacks); len(lacks) > 0 {
			s += "; its worker " + strings.Join(lacks, "; its worker ")
		}
	default:
		s = fmt.Sprintf("is being stopped on worker %s; that ends by %s at the latest", h.Worker, h.StopBy)
	}
	switch h.PreemptReason {
	case muster.NoReason:
	case muster.GangMember:
		s += "; it is being stopped, because another task of its gang has ended"
	default:
		s += fmt.Sprintf("; it was told to make room (%s), and goes on elsewhere", h.PreemptReason)
	}
	if h.LeaseExpiry > 0 {
		s += fmt.Sprintf("; the worker is unreachable, and the attempt is given up at %s unless it comes back", h.LeaseExpiry)
	}
	return s
}

// Limitations words what a worker cannot do while a task runs, of what it lacks.
func Limitations(lacks []string) (texts []string) {
	for _, feature := range muster.RunFeatures {
		if slices.Contains(lacks, feature) {
			texts = append(texts, limitationText[feature])
		}
	}
	return texts
}

var limitationText = map[string]string{
	muster.FeatureCancel:    "cannot be stopped: a cancel takes effect at the server only",
	muster.FeatureLogs:      "sends the log of a task only after the task has ended",
	muster.FeatureArtifacts: "sends no artifacts",
}

// GangWaitMessage words how a member of a gang stands that has ended before so many others.
func GangWaitMessage(others int) string {
	return fmt.Sprintf("has ended well, and waits for %d other tasks of its gang to do so, too", others)
}

// GangRestartMessage words what a queued member of a gang waits for of which so many are yet to
// be stopped.
func GangRestartMessage(t *muster.Task, held int) string {
	return fmt.Sprintf("its gang starts anew when the %d of its tasks that still run have been stopped (%s)", held, t.Message)
}
