package meter

import (
	"container/heap"
	"context"
	"sync"
	"time"
)

// schedule calls back for each subject when it is due. The cost of a call depends on the number of subjects that are due, not
// on the number of all: with thousands of sleeping tasks a worker starts the next one as fast as an idle worker. It is safe
// for concurrent use; run must be called once.
type schedule struct {
	mu      sync.Mutex
	waiting entryHeap
	all     map[*subject]*entry
	wake    chan struct{} // holds one token after another subject became the first
}

// entry is one subject's place in a schedule.
type entry struct {
	sub   *subject
	due   time.Time
	index int // in waiting, -1 during its callback
}

func newSchedule() *schedule {
	return &schedule{all: map[*subject]*entry{}, wake: make(chan struct{}, 1)}
}

// add schedules the first callback for sub at due.
func (s *schedule) add(sub *subject, due time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := &entry{sub: sub, due: due}
	s.all[sub] = e
	heap.Push(&s.waiting, e)
	if e.index == 0 {
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
}

// remove ends the callbacks for sub. It does not wait for one that runs.
func (s *schedule) remove(sub *subject) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.all[sub]
	delete(s.all, sub)
	if e != nil && e.index >= 0 {
		heap.Remove(&s.waiting, e.index)
	}
}

// popDue removes and returns the entries that are due. requeue puts them back.
func (s *schedule) popDue(now time.Time) (due []*entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.waiting) > 0 && !s.waiting[0].due.After(now) {
		due = append(due, heap.Pop(&s.waiting).(*entry)) //nolint:forcetypeassert // nothing else is pushed
	}
	return due
}

// requeue puts back the entries that were not removed since, and returns the time until the first of all is due: an hour if
// there is none.
func (s *schedule) requeue(done []*entry) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range done {
		if s.all[e.sub] == e {
			heap.Push(&s.waiting, e)
		}
	}
	if len(s.waiting) == 0 {
		return time.Hour
	}
	return max(0, time.Until(s.waiting[0].due))
}

// run calls fn with the subjects that are due until ctx ends. next returns when a subject is due again.
func (s *schedule) run(ctx context.Context, fn func(context.Context, time.Time, []*subject), next func(*subject) time.Time) {
	t := time.NewTimer(0)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		case <-t.C:
		}
		now := time.Now()
		due := s.popDue(now)
		if len(due) > 0 {
			subjects := make([]*subject, len(due))
			for i, e := range due {
				subjects[i] = e.sub
			}
			fn(ctx, now, subjects)
		}
		for _, e := range due {
			e.due = next(e.sub)
		}
		t.Reset(s.requeue(due))
	}
}

// entryHeap is ordered by due.
type entryHeap []*entry

// Len implements heap.Interface.
func (h *entryHeap) Len() int { return len(*h) }

// Less implements heap.Interface.
func (h *entryHeap) Less(i, j int) bool { return (*h)[i].due.Before((*h)[j].due) }

// Swap implements heap.Interface.
func (h *entryHeap) Swap(i, j int) {
	l := *h
	l[i], l[j] = l[j], l[i]
	l[i].index, l[j].index = i, j
}

// Push implements heap.Interface.
func (h *entryHeap) Push(x any) {
	e := x.(*entry) //nolint:forcetypeassert // nothing else is pushed
	e.index = len(*h)
	*h = append(*h, e)
}

// Pop implements heap.Interface.
func (h *entryHeap) Pop() any {
	last := len(*h) - 1
	e := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	e.index = -1
	return e
}
