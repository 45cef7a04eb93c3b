package queue

import "github.com/muster-dev/muster"

// AvoidList are workers that are not to be given a task for a while, because they
// rejected it, or it failed for what they lack.
type AvoidList []Avoidance

// Avoidance is one of them.
type Avoidance struct {
	Worker  *Worker
	Until   muster.Time
	Failed  bool   // it took the task, which failed
	Message string // by the worker, on why
}

// Active returns those that still are.
func (s AvoidList) Active(now muster.Time) AvoidList {
	var active AvoidList
	for _, a := range s {
		if a.Until > now {
			active = append(active, a)
		}
	}
	return active
}

// Has reports whether w is among them.
func (s AvoidList) Has(w *Worker) bool {
	for _, a := range s {
		if a.Worker == w {
			return true
		}
	}
	return false
}

// ForWorker returns the Shun of w that lasts longest, or one with no Until if it may be given the task now.
func (s AvoidList) ForWorker(w *Worker, now muster.Time) (last Avoidance) {
	for _, a := range s {
		if a.Worker == w && a.Until > max(last.Until, now) {
			last = a
		}
	}
	return last
}

// NextExpiry returns when the first of them is one no more, or 0 if there are none.
func (s AvoidList) NextExpiry() (at muster.Time) {
	for _, a := range s {
		if at == 0 || a.Until < at {
			at = a.Until
		}
	}
	return at
}
