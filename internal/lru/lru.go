// Package lru has a cache that keeps the most recently used entries.
package lru

import (
	"container/list"
	"sync"
)

// Cache caches values up to a total cost, and evicts the least recently used first. It keeps the newest entry even if that alone
// exceeds the total. It is safe for concurrent use.
type Cache[K comparable, V any] struct {
	maxCost int
	cost    func(V) int

	mu     sync.Mutex
	byKey  map[K]*list.Element // of *entry[K, V]
	recent *list.List          // the most recently used first
	total  int                 // cost of all entries
}

type entry[K comparable, V any] struct {
	key   K
	value V
}

// New returns a Cache. The cost of a value must not change while the Cache has it.
func New[K comparable, V any](maxCost int, cost func(V) int) *Cache[K, V] {
	return &Cache[K, V]{maxCost: maxCost, cost: cost, byKey: map[K]*list.Element{}, recent: list.New()}
}

// NewCounted returns a Cache of at most maxEntries entries.
func NewCounted[K comparable, V any](maxEntries int) *Cache[K, V] {
	return New[K](maxEntries, func(V) int { return 1 })
}

// Get returns a value, which the caller must not modify.
func (c *Cache[K, V]) Get(key K) (value V, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	elem := c.byKey[key]
	if elem == nil {
		return value, false
	}
	c.recent.MoveToFront(elem)
	return valueOf[K, V](elem).value, true
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
	var old V
	elem := c.byKey[key]
	if elem != nil {
		old = valueOf[K, V](elem).value
	}
	value := change(old, elem != nil)
	c.remove(elem)
	c.byKey[key] = c.recent.PushFront(&entry[K, V]{key, value})
	c.total += c.cost(value)
	for c.total > c.maxCost && c.recent.Len() > 1 {
		c.remove(c.recent.Back())
	}
	return value
}

// Remove removes a value if it is there.
func (c *Cache[K, V]) Remove(key K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.remove(c.byKey[key])
}

func (c *Cache[K, V]) remove(elem *list.Element) {
	if elem != nil {
		e := valueOf[K, V](elem)
		c.recent.Remove(elem)
		delete(c.byKey, e.key)
		c.total -= c.cost(e.value)
	}
}

func valueOf[K comparable, V any](elem *list.Element) *entry[K, V] {
	e, _ := elem.Value.(*entry[K, V])
	return e
}
