package queue

import (
	"cmp"
	"container/heap"

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
func (h *Heap[T]) Push(x T) { heap.Push((*nodes[T])(h), x) }

// Remove removes x, which must be in h.
func (h *Heap[T]) Remove(x T) { heap.Remove((*nodes[T])(h), *x.HeapIndex()-1) }

// Fix restores the order after x changed its own.
func (h *Heap[T]) Fix(x T) { heap.Fix((*nodes[T])(h), *x.HeapIndex()-1) }

// nodes implements heap.Interface and keeps the nodes' positions.
type nodes[T Node[T]] []T

func (n nodes[T]) Len() int           { return len(n) }
func (n nodes[T]) Less(i, j int) bool { return n[i].Before(n[j]) }

func (n nodes[T]) Swap(i, j int) {
	n[i], n[j] = n[j], n[i]
	*n[i].HeapIndex(), *n[j].HeapIndex() = i+1, j+1
}

func (n *nodes[T]) Push(x any) {
	node, _ := x.(T)
	*n = append(*n, node)
	*node.HeapIndex() = len(*n)
}

func (n *nodes[T]) Pop() any {
	last := len(*n) - 1
	node := (*n)[last]
	var zero T
	(*n)[last] = zero
	*n = (*n)[:last]
	*node.HeapIndex() = 0
	return node
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
type Timers struct{ armed Heap[*Timer] }

// Arm sets t to a time, and disarms it if that is 0.
func (h *Timers) Arm(t *Timer, at muster.Time) {
	switch {
	case at == 0 && t.index > 0:
		h.armed.Remove(t)
	case at == 0:
	case t.index == 0:
		t.at = at
		h.armed.Push(t)
	case t.at != at:
		t.at = at
		h.armed.Fix(t)
	}
}

// Next returns when the first timer is due, or 0 for never.
func (h *Timers) Next() muster.Time {
	if len(h.armed) == 0 {
		return 0
	}
	return h.armed[0].at
}

// PopDue disarms the first timer that is due by now, and returns its subject, or nil
// if there is none.
func (h *Timers) PopDue(now muster.Time) Subject {
	if len(h.armed) == 0 || h.armed[0].at > now {
		return nil
	}
	t := h.armed[0]
	h.armed.Remove(t)
	return t.Subject
}

// Check calls f for every subject, and reports whether the timers are in order.
func (h *Timers) Check(f func(Subject)) bool {
	for i, t := range h.armed {
		if t.index != i+1 || t.at == 0 || i > 0 && t.Before(h.armed[(i-1)/2]) {
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
