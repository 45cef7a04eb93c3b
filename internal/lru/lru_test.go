package lru

import "testing"

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
	if n := c.recent.Len(); n != 2 || len(c.byKey) != 2 || c.total != 70 {
		t.Errorf("%d entries of %d bytes", n, c.total)
	}
	c.Put(3, make([]byte, 200))
	if _, ok := c.Get(3); !ok || c.recent.Len() != 1 {
		t.Errorf("a value over the limit is kept: %t, with %d others", ok, c.recent.Len()-1)
	}
	c.Remove(3)
	c.Remove(4)
	if c.recent.Len() != 0 || len(c.byKey) != 0 || c.total != 0 {
		t.Errorf("%d entries of %d bytes are left", c.recent.Len(), c.total)
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
