package sched

// node is what a heap holds: something that knows its order and remembers its
// seat, so that it can be taken out of the middle.
type node[T any] interface {
	before(other T) bool
	seat() *int // 0 while it is in no heap, else its position from 1
}

// heap is a binary heap with the first node at index 0. The order must be total,
// or equal histories could give unequal decisions.
type heap[T node[T]] []T

func (h *heap[T]) push(x T) {
	*h = append(*h, x)
	*x.seat() = len(*h)
	h.up(len(*h) - 1)
}

// remove takes x out; it must be in h.
func (h *heap[T]) remove(x T) {
	old := *h
	i, last := *x.seat()-1, len(old)-1
	h.swap(i, last)
	var none T
	old[last] = none
	*h = old[:last]
	*x.seat() = 0
	if i < last {
		h.settle(i)
	}
}

// fix restores the order after x changed its own.
func (h *heap[T]) fix(x T) { h.settle(*x.seat() - 1) }

func (h *heap[T]) settle(i int) {
	if !h.down(i) {
		h.up(i)
	}
}

func (h *heap[T]) swap(i, j int) {
	a := *h
	a[i], a[j] = a[j], a[i]
	*a[i].seat(), *a[j].seat() = i+1, j+1
}

func (h *heap[T]) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if !(*h)[i].before((*h)[parent]) {
			return
		}
		h.swap(i, parent)
		i = parent
	}
}

func (h *heap[T]) down(i int) bool {
	moved := false
	for {
		child := 2*i + 1
		if child >= len(*h) {
			return moved
		}
		if r := child + 1; r < len(*h) && (*h)[r].before((*h)[child]) {
			child = r
		}
		if !(*h)[child].before((*h)[i]) {
			return moved
		}
		h.swap(i, child)
		i, moved = child, true
	}
}
