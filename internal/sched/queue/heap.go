package queue

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
