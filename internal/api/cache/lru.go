package cache

import (
	"container/list"
	"sync"
)

// LRU caches byte slices up to a total size, and evicts the least recently used first. It is safe for concurrent use.
type LRU[K comparable] struct {
	maxBytes int

	mu     sync.Mutex
	byKey  map[K]*list.Element // of *entry[K]
	recent *list.List          // the most recently used first
	bytes  int
}

type entry[K comparable] struct {
	key   K
	bytes []byte
}

// NewLRU returns an LRU for at most maxBytes bytes.
func NewLRU[K comparable](maxBytes int) *LRU[K] {
	return &LRU[K]{maxBytes: maxBytes, byKey: map[K]*list.Element{}, recent: list.New()}
}

// Get returns an entry, which the caller must not modify.
func (c *LRU[K]) Get(key K) (_ []byte, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	elem := c.byKey[key]
	if elem == nil {
		return nil, false
	}
	c.recent.MoveToFront(elem)
	e, _ := elem.Value.(*entry[K])
	return e.bytes, true
}

// Put adds an entry, which the caller must not modify afterwards. It keeps an existing one.
func (c *LRU[K]) Put(key K, b []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byKey[key] != nil {
		return
	}
	c.byKey[key] = c.recent.PushFront(&entry[K]{key, b})
	c.bytes += len(b)
	for c.bytes > c.maxBytes {
		oldest, _ := c.recent.Remove(c.recent.Back()).(*entry[K])
		delete(c.byKey, oldest.key)
		c.bytes -= len(oldest.bytes)
	}
}

// Len returns the number of entries and their total size.
func (c *LRU[K]) Len() (entries, bytes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.recent.Len(), c.bytes
}
