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
	mu     sync.Mutex
	at     time.Time
	value  T
	making *making[T] // nil while no request makes it
}

// making is a value that a request makes. The rest is set when done is closed.
type making[T any] struct {
	done  chan struct{}
	left  bool // the request ended before the value was there
	value T
	err   error
}

// Get returns the value if it is younger than age, and what again returns otherwise. It is Unavailable if ctx ends while another
// request makes the value.
func (f *Value[T]) Get(ctx context.Context, age time.Duration, again func(context.Context) (T, error)) (T, error) {
	for {
		f.mu.Lock()
		if !f.at.IsZero() && time.Since(f.at) < age {
			defer f.mu.Unlock()
			return f.value, nil
		}
		m := f.making
		if m == nil {
			m = &making[T]{done: make(chan struct{}), left: true}
			f.making = m
			f.mu.Unlock()
			return f.make(ctx, m, again)
		}
		f.mu.Unlock()
		select {
		case <-m.done:
		case <-ctx.Done():
			var none T
			return none, muster.Errorf(muster.Unavailable, "not done: the caller gave up: %w", context.Cause(ctx))
		}
		if !m.left {
			return m.value, m.err
		}
	}
}

// make makes the value for all who wait for m. If its request ends first, or again panics, one of them makes it.
func (f *Value[T]) make(ctx context.Context, m *making[T], again func(context.Context) (T, error)) (T, error) {
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.making = nil
		if !m.left && m.err == nil {
			f.value, f.at = m.value, time.Now()
		}
		close(m.done)
	}()
	m.value, m.err = again(ctx)
	m.left = m.err != nil && ctx.Err() != nil
	return m.value, m.err
}

// Values has a Value for each key, and forgets all of them when there are too many. Its methods may be called at the same time.
type Values[K comparable, T any] struct {
	most int

	mu     sync.Mutex
	values map[K]*Value[T]
}

// NewValues returns Values of at most so many keys.
func NewValues[K comparable, T any](most int) Values[K, T] {
	return Values[K, T]{most: most, values: map[K]*Value[T]{}}
}

// Of returns the Value of a key.
func (f *Values[K, T]) Of(key K) *Value[T] {
	f.mu.Lock()
	defer f.mu.Unlock()
	v := f.values[key]
	if v == nil {
		if len(f.values) >= f.most {
			clear(f.values)
		}
		v = &Value[T]{}
		f.values[key] = v
	}
	return v
}
