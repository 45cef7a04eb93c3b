// Package lru has a cache that keeps the most recently used entries.
package lru

import "sync"

// Cache caches values up to a total cost, and evicts the least recently used first. It keeps the newest entry even if that alone
// exceeds the total. It is safe for concurrent use.
type Cache[K comparable, V any] struct {
	maxCost int
	cost    func(V) int

	mu    sync.Mutex
	byKey map[K]int // indexes of entries
	// entries has the list of entries by use, linked by index, because the garbage collector need not follow indexes. The first is
	// both ends of the list. Unused ones are linked by next.
	entries []entry[K, V]
	unused  int // the first, 0 if there is none
	total   int // cost of all entries
}

type entry[K comparable, V any] struct {
	key        K
	value      V
	prev, next int // of those used more and less recently
}

// New returns a Cache. The cost of a value must not change while the Cache has it.
func New[K comparable, V any](maxCost int, cost func(V) int) *Cache[K, V] {
	return &Cache[K, V]{maxCost: maxCost, cost: cost, byKey: map[K]int{}, entries: make([]entry[K, V], 1)}
}

// NewCounted returns a Cache of at most maxEntries entries.
func NewCounted[K comparable, V any](maxEntries int) *Cache[K, V] {
	return New[K](maxEntries, func(V) int { return 1 })
}

// Get returns a value, which the caller must not modify.
func (c *Cache[K, V]) Get(key K) (value V, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := c.byKey[key]
	if i == 0 {
		return value, false
	}
	c.unlink(i)
	c.linkFirst(i)
	return c.entries[i].value, true
}

// Put adds or replaces a value, which the caller must not modify afterwards.
func (c *Cache[K, V]) Put(key K, value V) {
	c.Update(key, func(V, bool) V { return value })
}

// Add adds a value unless the Cache has one for the key, and returns the value that it has then.
func (c *Cache[K, V]) Add(key K, value V) V {
	return c.Update(key, func(old V, ok bool) V {
		if ok {
			return old
		}
		return value
	})
}

// Update sets a value to what change returns for the current one, and returns it.
func (c *Cache[K, V]) Update(key K, change func(old V, ok bool) V) V {
	c.mu.Lock()
	defer c.mu.Unlock()
	old := c.byKey[key]
	value := change(c.entries[old].value, old != 0) // the value of the first entry is zero
	c.remove(old)
	added := c.cost(value)
	for c.total > 0 && c.total+added > c.maxCost {
		c.remove(c.entries[0].prev)
	}
	i := c.take()
	c.entries[i].key, c.entries[i].value = key, value
	c.byKey[key] = i
	c.linkFirst(i)
	c.total += added
	return value
}

// Remove removes a value if it is there.
func (c *Cache[K, V]) Remove(key K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.remove(c.byKey[key])
}

// take returns an unused entry.
func (c *Cache[K, V]) take() int {
	i := c.unused
	if i == 0 {
		c.entries = append(c.entries, entry[K, V]{})
		return len(c.entries) - 1
	}
	c.unused = c.entries[i].next
	return i
}

func (c *Cache[K, V]) remove(i int) {
	if i == 0 {
		return
	}
	c.unlink(i)
	e := &c.entries[i]
	delete(c.byKey, e.key)
	c.total -= c.cost(e.value)
	*e = entry[K, V]{next: c.unused}
	c.unused = i
}

func (c *Cache[K, V]) linkFirst(i int) {
	next := c.entries[0].next
	c.entries[i].prev, c.entries[i].next = 0, next
	c.entries[next].prev, c.entries[0].next = i, i
}

func (c *Cache[K, V]) unlink(i int) {
	e := &c.entries[i]
	c.entries[e.prev].next, c.entries[e.next].prev = e.next, e.prev
}
