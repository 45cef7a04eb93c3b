package queue

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

type num struct{ value, id, index int }

func (n *num) HeapIndex() *int { return &n.index }

func (n *num) Before(o *num) bool {
	if n.value != o.value {
		return n.value < o.value
	}
	return n.id < o.id
}

// TestHeapOrder compares a heap with a sorted list.
func TestHeapOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var h Heap[*num]
		var list []*num
		for i := range rapid.IntRange(1, 100).Draw(t, "steps") {
			switch op := rapid.IntRange(0, 3).Draw(t, "op"); {
			case op < 2 || len(list) == 0:
				n := &num{value: rapid.IntRange(0, 9).Draw(t, "value"), id: i}
				h.Push(n)
				list = append(list, n)
			case op == 2:
				n := rapid.SampledFrom(list).Draw(t, "out")
				h.Remove(n)
				list = slices.DeleteFunc(list, func(o *num) bool { return o == n })
				if n.index != 0 {
					t.Fatalf("removed, but still has index %d", n.index)
				}
			default:
				n := rapid.SampledFrom(list).Draw(t, "changed")
				n.value = rapid.IntRange(0, 9).Draw(t, "to")
				h.Fix(n)
			}
			if len(h) != len(list) {
				t.Fatalf("%d nodes, want %d", len(h), len(list))
			}
			for i, n := range h {
				if n.index != i+1 || n.Before(h[0]) {
					t.Fatalf("node %d has index %d; it is before the first: %t", i, n.index, n.Before(h[0]))
				}
			}
		}
		slices.SortFunc(list, func(a, b *num) int {
			if a.Before(b) {
				return -1
			}
			return 1
		})
		for _, want := range list {
			if h[0] != want {
				t.Fatalf("first is %v, want %v", h[0], want)
			}
			h.Remove(h[0])
		}
	})
}
