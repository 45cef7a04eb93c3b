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

// Query describes the queued task to explain.
type Query struct {
	ID       muster.TaskID // its id in the queue; in a plan: as if it were submitted now
	Need     *placement.Need
	Priority int
	Project  *queue.Project // nil if it has no live job

	// Of a task that has a row, or of all members of a gang:
	avoid     queue.AvoidList
	notBefore muster.Time
	message   string // why it waits until then
}

// AddTask adds the avoided workers and the backoff of a row.
func (q *Query) AddTask(t *muster.Task, avoid queue.AvoidList) {
	q.avoid = append(q.avoid, avoid...)
	if t.NotBefore > q.notBefore {
		q.notBefore, q.message = t.NotBefore, t.Message
	}
}

// Evaluate fills in the verdicts of the queue and the workers.
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
		x.Summary = fmt.Sprintf("%s; it is retried after %s", cmp.Or(q.message, "its last attempt failed"), x.NotUntil)
		x.Nearest = ""
	}
	x.Start = x.estimate(now, shape)
}

// estimate returns when the task will start if tasks of its shape keep taking as long
// as they did, and as many of them run at once as now. It returns 0 without such
// history, and in a queue too long to count.
func (x *Explanation) estimate(now muster.Time, sh *queue.Shape) muster.Time {
	if sh == nil || sh.Ran == 0 || sh.Held == 0 || x.AheadTruncated {
		return 0
	}
	each := sh.Runtime / muster.Duration(sh.Ran)
	rounds := (x.Position + sh.Held - 1) / sh.Held
	return max(now.Add(each*muster.Duration(rounds)), x.NotUntil)
}

// WaitingMessage says which stages a task waits for.
func WaitingMessage(stages []string) string {
	if len(stages) == 1 {
		return "waits for stage " + stages[0] + " to succeed"
	}
	return "waits for the stages " + strings.Join(stages, ", ") + " to succeed"
}

// Assignment is how a worker holds a task.
type Assignment struct {
	Worker        string        // its name
	PreemptReason muster.Reason // why it is being preempted, or NoReason
	StopBy        muster.Time   // when a stopped attempt is abandoned
	LeaseExpiry   muster.Time   // when the attempt is lost because the worker is unreachable, or 0
	Lacks         []string      // features of muster.RunFeatures that the worker lacks
}

// Describe describes the state of a held task.
func (h *Assignment) Describe(t *muster.Task) string {
	var s string
	switch t.State {
	case muster.Assigned:
		s = fmt.Sprintf("offered to worker %s, which has not started it yet", h.Worker)
		if t.Step != "" {
			s = fmt.Sprintf("worker %s is preparing it: %s", h.Worker, t.Step)
		}
	case muster.Running:
		s = fmt.Sprintf("runs on worker %s since %s", h.Worker, t.StartedAt)
		if lacks := Limitations(h.Lacks); len(lacks) > 0 {
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

// Limitations describes the missing features that matter while a task runs.
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

// GangWaitMessage describes a gang member that is done before so many others.
func GangWaitMessage(others int) string {
	return fmt.Sprintf("has succeeded and waits for %d other tasks of its gang", others)
}

// GangRestartMessage describes a queued gang member whose gang still has so many running tasks.
func GangRestartMessage(t *muster.Task, held int) string {
	return fmt.Sprintf("its gang restarts when its %d running tasks have stopped (%s)", held, t.Message)
}
