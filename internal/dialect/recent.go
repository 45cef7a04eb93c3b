package dialect

import (
	"slices"
	"sync"
)

// Recent is a map with a limited number of entries: for a new one, it removes the oldest. Its methods may be called concurrently.
type Recent[V any] struct {
	limit int

	mu     sync.Mutex
	values map[string]V
	order  []string // of the keys, oldest first
}

// NewRecent returns an empty map.
func NewRecent[V any](limit int) *Recent[V] { return &Recent[V]{limit: limit, values: map[string]V{}} }

// Get returns the value of a key.
func (r *Recent[V]) Get(key string) (V, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	v, ok := r.values[key]
	return v, ok
}

// Add adds an entry unless there is one with the key, and returns the value that the key has then.
func (r *Recent[V]) Add(key string, v V) V {
	return r.Update(key, func(old V, exists bool) V {
		if exists {
			return old
		}
		return v
	})
}

// Set adds or replaces an entry.
func (r *Recent[V]) Set(key string, v V) { r.Update(key, func(V, bool) V { return v }) }

// Update sets the value of a key to what change returns for the current one, and returns it.
func (r *Recent[V]) Update(key string, change func(old V, exists bool) V) V {
	r.mu.Lock()
	defer r.mu.Unlock()
	old, exists := r.values[key]
	v := change(old, exists)
	r.values[key] = v
	if !exists {
		r.order = append(r.order, key)
	}
	for len(r.order) > r.limit {
		delete(r.values, r.order[0])
		r.order = r.order[1:]
	}
	return v
}

// Delete removes an entry.
func (r *Recent[V]) Delete(key string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, exists := r.values[key]; exists {
		delete(r.values, key)
		r.order = slices.DeleteFunc(r.order, func(k string) bool { return k == key })
	}
}
