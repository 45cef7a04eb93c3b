package place

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/muster-dev/muster"
)

// Answer is what one worker says to a need.
type Answer struct {
	Book     *Book
	Need     *Need
	Now      Filter      // the first that it fails as things stand
	Ever     Filter      // and if the worker were open and empty
	Rejected muster.Time // set if the worker would not take the very task, and is not asked again before
	Failed   bool        // it took the task, rather, which failed for what the worker lacks
	Said     string      // by the worker, on why; or ""
	Kept     string      // the other task for which the worker is kept free, or ""
}

// Ask asks one worker.
func Ask(b *Book, n *Need) Answer { return Answer{Book: b, Need: n, Now: b.Fits(n), Ever: b.Ever(n)} }

// SortAnswers puts the workers in order that are nearest to running the task:
// those that fit, those that could once they have room, those that never could,
// and among them those that fail a later filter.
func SortAnswers(answers []Answer) {
	slices.SortFunc(answers, func(a, b Answer) int {
		return cmp.Or(cmp.Compare(b.nearness(), a.nearness()), strings.Compare(a.Book.Worker.Name, b.Book.Worker.Name),
			cmp.Compare(a.Book.Worker.ID, b.Book.Worker.ID))
	})
}

func (a *Answer) fits() bool { return a.Now == Fits && a.Rejected == 0 && a.Kept == "" }

// waits reports whether the worker would do, were it not kept free for another.
func (a *Answer) waits() bool { return a.Kept != "" && a.Ever == Fits && a.Now != State }

func (a *Answer) nearness() int {
	const all = int(GPUs) + 1
	switch {
	case a.fits():
		return 2*all + 1
	case a.Ever == Fits:
		return all + int(a.Now)
	default:
		return int(a.Ever)
	}
}

// fails returns the filter that says the most: what the worker lacks for good
// before what it lacks now.
func (a *Answer) fails() Filter {
	if a.Ever != Fits {
		return a.Ever
	}
	return a.Now
}

// Why names the filter that the worker fails, "" if it fits, and words it, or for how
// many of a gang it has room.
func (a *Answer) Why() (filter, why string) {
	if a.Now == Fits && a.Rejected > 0 {
		filter, said := "rejected", ""
		if a.Failed {
			filter = "failed"
		}
		if a.Said != "" {
			said = " (" + a.Said + ")"
		}
		return filter, fmt.Sprintf("%s it a moment ago%s, and is asked again at %s", filter, said, a.Rejected)
	}
	if a.waits() {
		return "kept", "is kept free for " + a.Kept + ", which has waited for long"
	}
	f := a.fails()
	if n := a.Need.Gang; f == Fits && n > 0 {
		return "", fmt.Sprintf("has room for %d of %d", a.Book.Room(a.Need, n).Members, n)
	}
	return f.String(), a.Book.Why(a.Need, f)
}

// How a summary begins where none of the workers can ever run the task.
const (
	Never    = "can never start with the workers there are"
	NoWorker = "no worker has joined"
)

// Summarize says in one sentence what all workers together answer.
func Summarize(answers []Answer) string {
	if len(answers) > 0 && answers[0].Need.Gang > 0 {
		return summarizeGang(answers)
	}
	var fit, room, closed int
	lacks := map[Filter]int{}
	for i := range answers {
		switch a := &answers[i]; {
		case a.fits():
			fit++
		case a.Ever != Fits:
			lacks[a.Ever]++
		case a.Now == State:
			closed++
		default:
			room++
		}
	}
	switch {
	case len(answers) == 0:
		return NoWorker
	case fit > 0:
		return "can start now: " + workers(fit, "fits", "fit")
	case room > 0:
		return fmt.Sprintf("waits for room: %s run it, but not now", workers(room, "could", "could"))
	case closed > 0:
		return fmt.Sprintf("waits for a worker: %s run it, but none of them takes tasks now", workers(closed, "could", "could"))
	case engines(answers) > 0:
		return fmt.Sprintf("waits for a container engine: %s run it with one, but none is ready", workers(engines(answers), "could", "could"))
	}
	var parts []string
	for _, f := range Filters {
		if n := lacks[f]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d by %s", n, f))
		}
	}
	return Never + ": ruled out " + strings.Join(parts, ", ")
}

func workers(n int, one, many string) string {
	if n == 1 {
		return "1 worker " + one
	}
	return fmt.Sprintf("%d workers %s", n, many)
}

// Nearest words the smallest change that would let the task start: of its
// request alone, or the passing of time on one worker. answers are sorted.
func Nearest(answers []Answer) string {
	if len(answers) == 0 {
		return "start a worker and let it join this server"
	}
	if answers[0].Need.Gang > 0 {
		return nearestGang(answers)
	}
	if answers[0].fits() {
		return ""
	}
	var change, wait string
	var from *Answer // of whom the change is
	for i := range answers {
		a := &answers[i]
		if wait == "" {
			wait = a.wait()
		}
		if from != nil && (a.nearness() != from.nearness() || !a.closer(from)) {
			continue
		}
		if c := a.change(); c != "" {
			change, from = c, a
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

// closer reports whether a smaller change of the same part of the request is enough for
// a than for o.
func (a *Answer) closer(o *Answer) bool {
	return a.fails() == o.fails() && a.Book.gap(a.Need, a.fails(), a.Ever != Fits) < o.Book.gap(o.Need, o.fails(), o.Ever != Fits)
}

// wait words what must happen on the worker, if that is enough.
func (a *Answer) wait() string {
	name := a.Book.Worker.Name
	switch {
	case a.Ever == GPUs && a.Book.curable(a.Need):
		return fmt.Sprintf("let worker %s look at its quarantined GPUs again (muster workers heal %s)", name, name)
	case a.Ever == Engine && a.mendable():
		return fmt.Sprintf("start Docker or Podman on worker %s (muster doctor there tells what is wrong)", name)
	case a.Ever == Owner && a.mendable():
		return fmt.Sprintf("ask the owner of worker %s to allow it", name)
	case a.Ever != Fits:
		return ""
	case a.Rejected > 0:
		return fmt.Sprintf("wait until worker %s is asked again", name)
	case a.waits():
		return fmt.Sprintf("wait until %s has had its turn on worker %s", a.Kept, name)
	case a.Now == State && a.Book.Opens:
		return fmt.Sprintf("wait for worker %s, which %s", name, a.Book.Closed)
	case a.Now == State:
		return fmt.Sprintf("bring back worker %s, which %s", name, a.Book.Closed)
	default:
		return fmt.Sprintf("wait for worker %s to free %s", name, a.Book.Lack(a.Need, a.Now))
	}
}

// mendable reports whether the worker could run the task if it had a container engine
// that is ready, or if its owner allowed it: of these, what it fails by.
func (a *Answer) mendable() bool {
	c := *a.Need
	switch a.Ever {
	case Engine:
		c.Engine = false
	case Owner:
		c.owner = nil
	default:
		return false
	}
	return a.Book.Ever(&c) == Fits
}

// engines counts the workers that lack nothing but a container engine.
func engines(answers []Answer) (n int) {
	for i := range answers {
		if a := &answers[i]; a.Ever == Engine && a.mendable() {
			n++
		}
	}
	return n
}

// change words a change of the request by which it would fit the worker at once,
// or, if it never could, some day.
func (a *Answer) change() string {
	never := a.Ever != Fits
	if a.waits() {
		return ""
	}
	c, what, ok := a.Book.Relax(a.Need, a.fails(), never)
	if !ok || never && a.Book.Ever(c) != Fits || !never && a.Book.Fits(c) != Fits {
		return ""
	}
	return what
}
