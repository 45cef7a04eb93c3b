package cache

import (
	"container/list"
	"sync"
)

// LRU keeps texts up to a total of so many bytes, and forgets first what was not used for longest. Its methods may be called at the same time.
type LRU[K comparable] struct {
	maxBytes int

	mu     sync.Mutex
	byKey  map[K]*list.Element // of *text[K]
	recent *list.List          // the most recently used first
	bytes  int
}

type entry[K comparable] struct {
	key   K
	bytes []byte
}

// NewLRU returns an LRU of at most so many bytes.
func NewLRU[K comparable](maxBytes int) *LRU[K] {
	return &LRU[K]{maxBytes: maxBytes, byKey: map[K]*list.Element{}, recent: list.New()}
}

// Get returns a text, which must not be changed.
func (c *LRU[K]) Get(key K) (_ []byte, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	elem := c.byKey[key]
	if elem == nil {
		return nil, false
	}
	c.recent.MoveToFront(elem)
	e, _ := elem.Value.(*entry[K]) // nothing else is ever put in
	return e.bytes, true
}

// Put keeps a text, which must not be changed any more. One that is there already stays.
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

// Len returns how many texts there are, and how many bytes they have.
func (c *LRU[K]) Len() (entries, bytes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.recent.Len(), c.bytes
}
