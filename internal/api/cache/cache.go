// Package cache caches expensive answers, so that many viewers cost as much as one.
package cache

import (
	"context"
	"sync"
	"time"

	"github.com/muster-dev/muster"
)

// Value is a cached value that Get loads again when it is too old. Concurrent calls share one load, including its error. It is
// not a singleflight.Group, which loads in a goroutine of its own, where a panic ends the server, or with one caller's context
// for all. The zero Value is empty. It is safe for concurrent use.
type Value[T any] struct {
	mu       sync.Mutex
	loadedAt time.Time
	value    T
	call     *call[T] // nil if no load is running
}

// call is a running load. Its other fields are set when done is closed.
type call[T any] struct {
	done      chan struct{}
	abandoned bool // the caller's context ended before the value was loaded
	value     T
	err       error
}

// Get returns the value if it is younger than ttl, else the result of load. It returns Unavailable if ctx ends while another
// call loads the value.
func (v *Value[T]) Get(ctx context.Context, ttl time.Duration, load func(context.Context) (T, error)) (T, error) {
	for {
		v.mu.Lock()
		if !v.loadedAt.IsZero() && time.Since(v.loadedAt) < ttl {
			defer v.mu.Unlock()
			return v.value, nil
		}
		c := v.call
		if c == nil {
			c = &call[T]{done: make(chan struct{}), abandoned: true}
			v.call = c
			v.mu.Unlock()
			return v.load(ctx, c, load)
		}
		v.mu.Unlock()
		select {
		case <-c.done:
		case <-ctx.Done():
			var zero T
			return zero, muster.Errorf(muster.Unavailable, "not done: the caller cancelled the request: %w", context.Cause(ctx))
		}
		if !c.abandoned {
			return c.value, c.err
		}
	}
}

// load loads the value for all callers that wait for c. If ctx ends first, or load panics, another caller loads it.
func (v *Value[T]) load(ctx context.Context, c *call[T], load func(context.Context) (T, error)) (T, error) {
	defer func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.call = nil
		if !c.abandoned && c.err == nil {
			v.value, v.loadedAt = c.value, time.Now()
		}
		close(c.done)
	}()
	c.value, c.err = load(ctx)
	c.abandoned = c.err != nil && ctx.Err() != nil
	return c.value, c.err
}

// Values has a Value for each key. It drops all of them when there are too many. It is safe for concurrent use.
type Values[K comparable, T any] struct {
	maxKeys int

	mu     sync.Mutex
	values map[K]*Value[T]
}

// NewValues returns Values for at most maxKeys keys.
func NewValues[K comparable, T any](maxKeys int) Values[K, T] {
	return Values[K, T]{maxKeys: maxKeys, values: map[K]*Value[T]{}}
}

// Value returns the Value for a key.
func (vs *Values[K, T]) Value(key K) *Value[T] {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	v := vs.values[key]
	if v == nil {
		if len(vs.values) >= vs.maxKeys {
			clear(vs.values)
		}
		v = &Value[T]{}
		vs.values[key] = v
	}
	return v
}
