package lru

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestEviction checks that the most recently used entries are kept.
func TestEviction(t *testing.T) {
	c := New[int](100, func(b []byte) int { return len(b) })
	for n := range 3 {
		c.Put(n, make([]byte, 40))
		c.Get(0)
	}
	c.Put(2, make([]byte, 30)) // replaces it
	for n, want := range []bool{true, false, true} {
		if _, ok := c.Get(n); ok != want {
			t.Errorf("entry %d is kept: %t", n, ok)
		}
	}
	if n := len(c.byKey); n != 2 || c.total != 70 {
		t.Errorf("%d entries of %d bytes", n, c.total)
	}
	c.Put(3, make([]byte, 200))
	if _, ok := c.Get(3); !ok || len(c.byKey) != 1 {
		t.Errorf("a value over the limit is kept: %t, with %d others", ok, len(c.byKey)-1)
	}
	c.Remove(3)
	c.Remove(4)
	if len(c.byKey) != 0 || c.total != 0 || len(c.entries) != 3 {
		t.Errorf("%d entries of %d bytes are left, with %d in memory", len(c.byKey), c.total, len(c.entries)-1)
	}
}

// TestAddAndUpdate checks that Add keeps a value, and that Update gets the current one.
func TestAddAndUpdate(t *testing.T) {
	c := NewCounted[string, int](2)
	if first, second := c.Add("a", 1), c.Add("a", 2); first != 1 || second != 1 {
		t.Errorf("Add returns %d and %d", first, second)
	}
	c.Remove("a")
	if v := c.Add("a", 3); v != 3 {
		t.Errorf("after Remove Add returns %d", v)
	}
	for _, want := range []int{4, 5} {
		if v := c.Update("a", func(old int, _ bool) int { return old + 1 }); v != want {
			t.Errorf("Update returns %d", v)
		}
	}
	if v := c.Update("b", func(_ int, ok bool) int { return map[bool]int{false: 7}[ok] }); v != 7 {
		t.Errorf("Update of a new entry returns %d", v)
	}
}

// TestCounted checks a limit of entries.
func TestCounted(t *testing.T) {
	c := NewCounted[int, string](2)
	for n := range 4 {
		c.Put(n, "x")
	}
	for n, want := range []bool{false, false, true, true} {
		if _, ok := c.Get(n); ok != want {
			t.Errorf("entry %d is kept: %t", n, ok)
		}
	}
}

// TestOrder compares the cache with a list that is searched from end to end.
func TestOrder(t *testing.T) {
	const most = 5
	r := rand.New(rand.NewPCG(1, 2))
	c := NewCounted[int, int](most)
	var want [][2]int // key and value, the most recently used last
	find := func(key int) int { return slices.IndexFunc(want, func(e [2]int) bool { return e[0] == key }) }
	for step := range 10_000 {
		key := r.IntN(2 * most)
		i := find(key)
		switch r.IntN(4) {
		case 0:
			c.Remove(key)
			if i >= 0 {
				want = slices.Delete(want, i, i+1)
			}
		case 1:
			v, ok := c.Get(key)
			if ok != (i >= 0) || ok && v != want[i][1] {
				t.Fatalf("step %d: Get(%d) returns %d, %t, of %v", step, key, v, ok, want)
			}
			if ok {
				want = append(slices.Delete(want, i, i+1), [2]int{key, v})
			}
		default:
			c.Put(key, step)
			if i >= 0 {
				want = slices.Delete(want, i, i+1)
			}
			want = append(want, [2]int{key, step})
			want = want[max(0, len(want)-most):]
		}
	}
}
