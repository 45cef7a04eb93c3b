// Package cache keeps answers that are expensive to make for as long as they are good enough, so that many viewers cost as much as one.
package cache

import (
	"context"
	"sync"
	"time"

	"github.com/muster-dev/muster"
)

// Value is a value that Get makes again when it is too old. Requests that ask at the same time share what one of them makes, also
// if that is an error. A singleflight.Group would make it in a goroutine of its own, where a panic ends the server, or with the context of one
// request for all. The zero Value is empty. Its methods may be called at the same time.
type Value[T any] struct {
	mu       sync.Mutex
	loadedAt time.Time
	value    T
	call     *call[T] // nil while no request makes it
}

// call is a value that a request makes. The rest is set when done is closed.
type call[T any] struct {
	done      chan struct{}
	abandoned bool // the request ended before the value was there
	value     T
	err       error
}

// Get returns the value if it is younger than age, and what again returns otherwise. It is Unavailable if ctx ends while another
// request makes the value.
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
			return zero, muster.Errorf(muster.Unavailable, "not done: the caller gave up: %w", context.Cause(ctx))
		}
		if !c.abandoned {
			return c.value, c.err
		}
	}
}

// load makes the value for all who wait for m. If its request ends first, or again panics, one of them makes it.
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

// Values has a Value for each key, and forgets all of them when there are too many. Its methods may be called at the same time.
type Values[K comparable, T any] struct {
	maxKeys int

	mu     sync.Mutex
	values map[K]*Value[T]
}

// NewValues returns Values of at most so many keys.
func NewValues[K comparable, T any](maxKeys int) Values[K, T] {
	return Values[K, T]{maxKeys: maxKeys, values: map[K]*Value[T]{}}
}

// Value returns the Value of a key.
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
