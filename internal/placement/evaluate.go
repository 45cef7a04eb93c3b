package placement

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/muster-dev/muster"
)

// Evaluation is the result of checking a need on one worker.
type Evaluation struct {
	Usage        *WorkerUsage
	Need         *Need
	Now          Filter      // the first that fails now
	Empty        Filter      // the first that would fail if the worker were open and empty
	AvoidedUntil muster.Time // set if the worker rejected or failed the task, which avoids it until then
	Failed       bool        // it failed the task rather than rejecting it
	Message      string      // the worker's reason, or ""
	ReservedFor  string      // another task that the worker is reserved for, or ""
}

// Evaluate checks a need on one worker.
func Evaluate(b *WorkerUsage, n *Need) Evaluation {
	return Evaluation{Usage: b, Need: n, Now: b.Fits(n), Empty: b.FitsEmpty(n)}
}

// SortEvaluations sorts workers by how close they are to running the task: those that
// fit, those that will fit once they have room, those that never fit; and among equals
// those that fail a later filter first.
func SortEvaluations(evals []Evaluation) {
	slices.SortFunc(evals, func(a, b Evaluation) int {
		return cmp.Or(cmp.Compare(b.nearness(), a.nearness()), strings.Compare(a.Usage.Worker.Name, b.Usage.Worker.Name),
			cmp.Compare(a.Usage.Worker.ID, b.Usage.Worker.ID))
	})
}

func (a *Evaluation) fits() bool { return a.Now == Fits && a.AvoidedUntil == 0 && a.ReservedFor == "" }

// blockedByReservation reports whether the worker is excluded only by a reservation.
func (a *Evaluation) blockedByReservation() bool {
	return a.ReservedFor != "" && a.Empty == Fits && a.Now != State
}

func (a *Evaluation) nearness() int {
	const all = int(GPUs) + 1
	switch {
	case a.fits():
		return 2*all + 1
	case a.Empty == Fits:
		return all + int(a.Now)
	default:
		return int(a.Empty)
	}
}

// failedFilter returns the filter that excludes the worker permanently if there is one,
// else the one that excludes it now.
func (a *Evaluation) failedFilter() Filter {
	if a.Empty != Fits {
		return a.Empty
	}
	return a.Now
}

// Explain returns the name of the first filter that the worker fails, "" if it fits, and the
// reason, or how many members of a gang fit. The reason of a worker that can never run the task
// names all that it lacks.
func (a *Evaluation) Explain() (filter, reason string) {
	if a.Now == Fits && a.AvoidedUntil > 0 {
		filter, detail := "rejected", ""
		if a.Failed {
			filter = "failed"
		}
		if a.Message != "" {
			detail = " (" + a.Message + ")"
		}
		return filter, fmt.Sprintf("%s it a moment ago%s, and is asked again at %s", filter, detail, a.AvoidedUntil)
	}
	if a.blockedByReservation() {
		return "kept", "is reserved for " + a.ReservedFor + ", which has waited for longer"
	}
	if a.Empty != Fits {
		return a.Empty.String(), joinReasons(a.lacks())
	}
	f := a.Now
	if n := a.Need.Gang; f == Fits && n > 0 {
		return "", fmt.Sprintf("has room for %d of %d", a.Usage.GangFit(a.Need, n).Members, n)
	}
	return f.String(), a.Usage.Explain(a.Need, f)
}

// Summarize summarizes the evaluations of all workers in one sentence.
func Summarize(evals []Evaluation) string {
	if len(evals) > 0 && evals[0].Need.Gang > 0 {
		return summarizeGang(evals)
	}
	var fit, busy, closed int
	var avoided []*Evaluation
	lacks := map[Filter]int{}
	for i := range evals {
		switch a := &evals[i]; {
		case a.fits():
			fit++
		case a.Empty != Fits:
			lacks[a.Empty]++
		case a.Now == State:
			closed++
		case a.Now == Fits && a.AvoidedUntil > 0:
			avoided = append(avoided, a)
		default:
			busy++
		}
	}
	switch {
	case len(evals) == 0:
		return muster.SummaryNoWorker
	case fit > 0:
		return "can start now: " + pluralWorkers(fit, "fits", "fit")
	case len(avoided) > 0:
		return summarizeAvoided(avoided)
	case busy > 0:
		return fmt.Sprintf("waits for room: %s run it, but not now", pluralWorkers(busy, "could", "could"))
	case closed > 0:
		return fmt.Sprintf("waits for a worker: %s run it, but none of them takes tasks now", pluralWorkers(closed, "could", "could"))
	case countEngineFixable(evals) > 0:
		return fmt.Sprintf("waits for a container engine: %s run it with one, but none is ready", pluralWorkers(countEngineFixable(evals), "could", "could"))
	}
	var parts []string
	for f := State; f <= GPUs; f++ {
		if n := lacks[f]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d filtered out by %s", n, f))
		}
	}
	return muster.SummaryUnschedulable + ": " + strings.Join(parts, ", ")
}

// summarizeAvoided says when the first of the workers that the task avoids is tried again, and why it is avoided.
func summarizeAvoided(avoided []*Evaluation) string {
	first := slices.MinFunc(avoided, func(a, b *Evaluation) int { return cmp.Compare(a.AvoidedUntil, b.AvoidedUntil) })
	_, reason := first.Explain()
	reason, _, _ = strings.Cut(reason, ", and is asked again at ")
	text := fmt.Sprintf("is tried again at %s: worker %s %s", first.AvoidedUntil, first.Usage.Worker.Name, reason)
	if n := len(avoided) - 1; n > 0 {
		text += fmt.Sprintf("; so did %d more", n)
	}
	return text
}

// Departed adds to a summary of all workers that those of the list, which have left, could run the task. It does nothing
// if the list is empty.
func Departed(summary string, departed []Evaluation) string {
	could := fmt.Sprintf("%s run it, but they have left", pluralWorkers(len(departed), "could", "could"))
	switch {
	case len(departed) == 0:
		return summary
	case len(departed) == 1:
		could = "worker " + departed[0].Usage.Worker.Name + " could run it, but it has left"
	}
	if summary == muster.SummaryNoWorker {
		return muster.SummaryUnschedulable + ": " + could
	}
	return summary + "; " + could
}

func pluralWorkers(n int, singular, plural string) string {
	if n == 1 {
		return "1 worker " + singular
	}
	return fmt.Sprintf("%d workers %s", n, plural)
}

// maxCompared limits the workers that are compared after a change of several parts of the request was found.
const maxCompared = 500

// Nearest describes the smallest change that would let the task start: a change of its
// request, or something that must happen on one worker. evals are sorted.
func Nearest(evals []Evaluation) string {
	if len(evals) == 0 {
		return "start a worker and let it join this server"
	}
	if evals[0].Need.Gang > 0 {
		return nearestGang(evals)
	}
	if evals[0].fits() {
		return ""
	}
	var change, wait string
	var from *Evaluation // the origin of change
	var changes int      // in change
	for i := range evals {
		a := &evals[i]
		if wait == "" {
			wait = a.waitAdvice()
		}
		closer := from == nil || a.nearness() == from.nearness() && a.closerThan(from)
		if !closer && (changes == 1 || i >= maxCompared) {
			continue
		}
		if c, n := a.changeAdvice(); n > 0 && (from == nil || n < changes || n == changes && closer) {
			change, from, changes = c, a, n
		}
	}
	switch {
	case change != "" && wait != "":
		return change + ", or " + wait
	case change+wait == "":
		return "no change of the request is enough: see what each worker lacks, or start a worker that fits"
	default:
		return change + wait
	}
}

// closerThan reports whether a needs a smaller change of the same part of the request
// than o.
func (a *Evaluation) closerThan(o *Evaluation) bool {
	return a.failedFilter() == o.failedFilter() && a.Usage.shortfall(a.Need, a.failedFilter(), a.Empty != Fits) < o.Usage.shortfall(o.Need, o.failedFilter(), o.Empty != Fits)
}

// waitAdvice returns what must happen on the worker if that is enough, else "".
func (a *Evaluation) waitAdvice() string {
	name := a.Usage.Worker.Name
	switch {
	case a.Empty == GPUs && a.Usage.healable(a.Need):
		return fmt.Sprintf("let worker %s check its quarantined GPUs again (muster workers heal %s)", name, name)
	case a.Empty == Engine && a.fixable():
		return fmt.Sprintf("start Docker or Podman on worker %s (run muster doctor there to find the cause)", name)
	case a.Empty == Owner && a.fixable():
		return fmt.Sprintf("ask the owner of worker %s to allow it", name)
	case a.Empty != Fits:
		return ""
	case a.AvoidedUntil > 0:
		return fmt.Sprintf("wait until worker %s is tried again", name)
	case a.blockedByReservation():
		return fmt.Sprintf("wait until %s has started, for which worker %s is reserved", a.ReservedFor, name)
	case a.Now == State && a.Usage.WillReopen:
		return fmt.Sprintf("wait for worker %s, which %s", name, a.Usage.ClosedReason)
	case a.Now == State:
		return fmt.Sprintf("bring back worker %s, which %s", name, a.Usage.ClosedReason)
	default:
		return fmt.Sprintf("wait for worker %s to free %s", name, a.Usage.Shortage(a.Need, a.Now))
	}
}

// fixable reports whether the worker could run the task if only the failed filter Engine
// or Owner passed.
func (a *Evaluation) fixable() bool {
	c := *a.Need
	switch a.Empty {
	case Engine:
		c.Engine = false
	case Owner:
		c.ownerPolicy = nil
	default:
		return false
	}
	return a.Usage.FitsEmpty(&c) == Fits
}

// countEngineFixable counts the workers that lack nothing but a container engine.
func countEngineFixable(evals []Evaluation) (n int) {
	for i := range evals {
		if a := &evals[i]; a.Empty == Engine && a.fixable() {
			n++
		}
	}
	return n
}

// changeAdvice returns a change of the request after which it would fit the worker now
// or, if it never could, later, and how many parts of the request it changes, or 0.
func (a *Evaluation) changeAdvice() (string, int) {
	if a.blockedByReservation() {
		return "", 0
	}
	if a.Empty == Fits {
		c, advice, ok := a.Usage.Relax(a.Need, a.Now, false)
		if !ok || a.Usage.Fits(c) != Fits {
			return "", 0
		}
		return advice, 1
	}
	list, fits := a.lacks()
	if !fits {
		return "", 0
	}
	const ask = "ask for "
	var text strings.Builder
	for i, l := range list {
		part := l.advice
		switch {
		case i == 0:
		case strings.HasPrefix(part, ask) && strings.HasPrefix(list[i-1].advice, ask):
			text.WriteString(" and ")
			part = strings.TrimPrefix(part, ask)
		default:
			text.WriteString(", and ")
		}
		if i < len(list)-1 { // one mention of the worker is enough
			part = strings.TrimSuffix(part, " (worker "+a.Usage.Worker.Name+")")
		}
		text.WriteString(part)
	}
	return text.String(), len(list)
}

// lack is a reason why a worker can never run a task, and the change of the request that avoids it, or "".
type lack struct{ reason, advice string }

// maxLacks limits the lacks that are listed for one worker.
const maxLacks = 6

// lacks lists what the worker lacks even if it were open and empty, as far as changes of the request help; fits reports whether the
// task fits with all of them.
func (a *Evaluation) lacks() (list []lack, fits bool) {
	need := a.Need
	for f := a.Empty; f != Fits; f = a.Usage.FitsEmpty(need) {
		changed, advice, ok := a.Usage.Relax(need, f, true)
		list = append(list, lack{a.Usage.Explain(need, f), advice})
		if !ok || len(list) == maxLacks {
			return list, false
		}
		need = changed
	}
	return list, true
}

func joinReasons(list []lack, _ bool) string {
	reasons := make([]string, len(list))
	for i, l := range list {
		reasons[i] = l.reason
	}
	return strings.Join(reasons, "; ")
}
