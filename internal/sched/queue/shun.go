package queue

import "github.com/muster-dev/muster"

// Shunned are workers that are not to be given a task for a while, because they
// rejected it, or it failed for what they lack.
type Shunned []Shun

// Shun is one of them.
type Shun struct {
	Worker *Worker
	Until  muster.Time
	Failed bool   // it took the task, which failed
	Said   string // by the worker, on why
}

// Now returns those that still are.
func (s Shunned) Now(now muster.Time) Shunned {
	var kept Shunned
	for _, a := range s {
		if a.Until > now {
			kept = append(kept, a)
		}
	}
	return kept
}

// Has reports whether w is among them.
func (s Shunned) Has(w *Worker) bool {
	for _, a := range s {
		if a.Worker == w {
			return true
		}
	}
	return false
}

// Of returns the Shun of w that lasts longest, or one with no Until if it may be given the task now.
func (s Shunned) Of(w *Worker, now muster.Time) (last Shun) {
	for _, a := range s {
		if a.Worker == w && a.Until > max(last.Until, now) {
			last = a
		}
	}
	return last
}

// Next returns when the first of them is one no more, or 0 if there are none.
func (s Shunned) Next() (at muster.Time) {
	for _, a := range s {
		if at == 0 || a.Until < at {
			at = a.Until
		}
	}
	return at
}
