// Package inflight knows which tasks with equal keys are queued and which of them run, so that identical tasks run one at a time. It is pure.
package inflight

import "slices"

// Table has the tasks of each key. The zero value is empty.
type Table[T comparable] struct {
	byKey map[Key]*tasks[T]
}

// Key is what identical tasks have in common.
type Key struct{ Project, Digest string }

type tasks[T comparable] struct {
	queued  map[T]struct{}
	running []T // the first one first
}

// Queue adds a queued task. It may be added again.
func (t *Table[T]) Queue(k Key, task T) { t.of(k).queued[task] = struct{}{} }

// Unqueue removes a queued task, if it is there.
func (t *Table[T]) Unqueue(k Key, task T) {
	if f := t.byKey[k]; f != nil {
		delete(f.queued, task)
		t.drop(k, f)
	}
}

// Start adds a task that runs.
func (t *Table[T]) Start(k Key, task T) {
	f := t.of(k)
	f.running = append(f.running, task)
}

// End removes a task that ran.
func (t *Table[T]) End(k Key, task T) {
	if f := t.byKey[k]; f != nil {
		f.running = slices.DeleteFunc(f.running, func(other T) bool { return other == task })
		t.drop(k, f)
	}
}

// Running returns the task with a key that has run for longest, and false if none runs.
func (t *Table[T]) Running(k Key) (task T, ok bool) {
	if f := t.byKey[k]; f != nil && len(f.running) > 0 {
		return f.running[0], true
	}
	return task, false
}

// Queued returns the queued tasks with a key, sorted by compare.
func (t *Table[T]) Queued(k Key, compare func(a, b T) int) []T {
	f := t.byKey[k]
	if f == nil {
		return nil
	}
	list := make([]T, 0, len(f.queued))
	for task := range f.queued {
		list = append(list, task)
	}
	slices.SortFunc(list, compare)
	return list
}

// Len returns the number of keys that have tasks.
func (t *Table[T]) Len() int { return len(t.byKey) }

func (t *Table[T]) of(k Key) *tasks[T] {
	f := t.byKey[k]
	if f == nil {
		if t.byKey == nil {
			t.byKey = map[Key]*tasks[T]{}
		}
		f = &tasks[T]{queued: map[T]struct{}{}}
		t.byKey[k] = f
	}
	return f
}

func (t *Table[T]) drop(k Key, f *tasks[T]) {
	if len(f.queued) == 0 && len(f.running) == 0 {
		delete(t.byKey, k)
	}
}
