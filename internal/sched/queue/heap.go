package queue

import (
	"cmp"

	"github.com/muster-dev/muster"
)

// Node is an element of a Heap. HeapIndex points to its position from 1, or 0 while it
// is in no heap.
type Node[T any] interface {
	Before(other T) bool
	HeapIndex() *int
}

// Heap has the first node at index 0. The order should be total, so that equal
// histories give equal heaps. The zero Heap is empty.
type Heap[T Node[T]] []T

// Push adds x.
func (h *Heap[T]) Push(x T) {
	*h = append(*h, x)
	*x.HeapIndex() = len(*h)
	h.up(len(*h) - 1)
}

// Remove removes x, which must be in h.
func (h *Heap[T]) Remove(x T) {
	old := *h
	i, last := *x.HeapIndex()-1, len(old)-1
	h.swap(i, last)
	var zero T
	old[last] = zero
	*h = old[:last]
	*x.HeapIndex() = 0
	if i < last {
		h.fix(i)
	}
}

// Fix restores the order after x changed its own.
func (h *Heap[T]) Fix(x T) { h.fix(*x.HeapIndex() - 1) }

func (h *Heap[T]) fix(i int) {
	if !h.down(i) {
		h.up(i)
	}
}

func (h *Heap[T]) swap(i, j int) {
	a := *h
	a[i], a[j] = a[j], a[i]
	*a[i].HeapIndex(), *a[j].HeapIndex() = i+1, j+1
}

func (h *Heap[T]) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if !(*h)[i].Before((*h)[parent]) {
			return
		}
		h.swap(i, parent)
		i = parent
	}
}

func (h *Heap[T]) down(i int) bool {
	moved := false
	for {
		child := 2*i + 1
		if child >= len(*h) {
			return moved
		}
		if r := child + 1; r < len(*h) && (*h)[r].Before((*h)[child]) {
			child = r
		}
		if !(*h)[child].Before((*h)[i]) {
			return moved
		}
		h.swap(i, child)
		i, moved = child, true
	}
}

// Timer is the time when its subject is due. Set Subject before it is armed.
type Timer struct {
	Subject Subject
	at      muster.Time
	index   int
}

// Subject owns a timer.
type Subject interface{ TimerKey() TimerKey }

// TimerKey orders timers of the same time, by the fields in order. It is unique.
type TimerKey struct {
	Sort int
	Name string
	Job  muster.JobID
	Num  int
}

// Armed reports whether the timer is set.
func (t *Timer) Armed() bool { return t.index > 0 }

// HeapIndex makes Timer a Node.
func (t *Timer) HeapIndex() *int { return &t.index }

// Before orders by time, then by TimerKey.
func (t *Timer) Before(o *Timer) bool {
	if t.at != o.at {
		return t.at < o.at
	}
	a, b := t.Subject.TimerKey(), o.Subject.TimerKey()
	return cmp.Or(cmp.Compare(a.Sort, b.Sort), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Job, b.Job), cmp.Compare(a.Num, b.Num)) < 0
}

// Timers holds the armed timers. The zero value has none.
type Timers struct{ heap Heap[*Timer] }

// Arm sets t to a time, and disarms it if that is 0.
func (h *Timers) Arm(t *Timer, at muster.Time) {
	switch {
	case at == 0 && t.index > 0:
		h.heap.Remove(t)
	case at == 0:
	case t.index == 0:
		t.at = at
		h.heap.Push(t)
	case t.at != at:
		t.at = at
		h.heap.Fix(t)
	}
}

// Next returns when the first timer is due, or 0 for never.
func (h *Timers) Next() muster.Time {
	if len(h.heap) == 0 {
		return 0
	}
	return h.heap[0].at
}

// PopDue disarms the first timer that is due by now, and returns its subject, or nil
// if there is none.
func (h *Timers) PopDue(now muster.Time) Subject {
	if len(h.heap) == 0 || h.heap[0].at > now {
		return nil
	}
	t := h.heap[0]
	h.heap.Remove(t)
	return t.Subject
}

// Check calls f for every subject, and reports whether the timers are in order.
func (h *Timers) Check(f func(Subject)) bool {
	for i, t := range h.heap {
		if t.index != i+1 || t.at == 0 || i > 0 && t.Before(h.heap[(i-1)/2]) {
			return false
		}
		f(t.Subject)
	}
	return true
}

// Earlier returns the earlier of two times, where 0 is never.
func Earlier(a, b muster.Time) muster.Time {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}
