package queue

import "github.com/muster-dev/muster"

// AvoidList lists workers that a task avoids for a while, because they rejected or
// failed it.
type AvoidList []Avoidance

// Avoidance is an entry of an AvoidList.
type Avoidance struct {
	Worker  *Worker
	Until   muster.Time
	Failed  bool   // the task failed there
	Message string // the worker's reason
}

// Active returns the entries that have not expired.
func (s AvoidList) Active(now muster.Time) AvoidList {
	var active AvoidList
	for _, a := range s {
		if a.Until > now {
			active = append(active, a)
		}
	}
	return active
}

// Has reports whether w is in the list.
func (s AvoidList) Has(w *Worker) bool {
	for _, a := range s {
		if a.Worker == w {
			return true
		}
	}
	return false
}

// ForWorker returns the active entry of w that lasts longest, or the zero Avoidance.
func (s AvoidList) ForWorker(w *Worker, now muster.Time) (last Avoidance) {
	for _, a := range s {
		if a.Worker == w && a.Until > max(last.Until, now) {
			last = a
		}
	}
	return last
}

// NextExpiry returns when the first entry expires, or 0 if there is none.
func (s AvoidList) NextExpiry() (at muster.Time) {
	for _, a := range s {
		if at == 0 || a.Until < at {
			at = a.Until
		}
	}
	return at
}
