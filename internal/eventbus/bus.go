// Package notify fans committed events out to those who watch.
//
// The bus keeps the last Kept events in a ring. A subscription is only a
// position in it: publishing never blocks, runs no code of the watchers, and finds those that
// sleep and are concerned by the jobs and tasks of the events. Each watcher filters on its own
// goroutine; one that is too slow finds its position gone from the ring and gets one
// muster.EventResync in place of what it missed. A subscription that nobody reads any more holds
// nothing and needs no closing.
package eventbus

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/muster-dev/muster"
)

const (
	// RingSize is how many events can be asked for again.
	RingSize = 10_000
	// maxBatch is how many events one Next returns at most.
	maxBatch = 256
	// maxScan is how many events are looked at before the bus is given free for a moment.
	maxScan = 1024
)

// Scope bounds what a subscription is about. The zero value is everything.
type Scope struct {
	job    muster.JobID // 0 means all
	task   int          // its number in the job, if one
	single bool
}

// JobScope is everything about a job and its tasks.
func JobScope(id muster.JobID) Scope { return Scope{job: id} }

// TaskScope is everything about a task, and about its job as a whole: tasks that wait in a
// large array change without events of their own.
func TaskScope(id muster.TaskID) Scope { return Scope{job: id.Job, task: id.Num, single: true} }

// jobOf returns the job that an event is about; 0 if it is about none.
func jobOf(e *muster.Event) muster.JobID {
	if e.Job == 0 && e.Task != nil {
		return e.Task.Job
	}
	return e.Job
}

// contains reports whether an event is in the scope.
func (s Scope) contains(e *muster.Event) bool {
	return s.job == 0 || s.job == jobOf(e) && (!s.single || e.Task == nil || e.Task.Num == s.task)
}

// Bus is the fan-out. Its methods may be called at the same time.
type Bus struct {
	epoch string

	mu   sync.Mutex
	ring []muster.Event // event seq is at (seq-1) % Kept
	last uint64         // seq of the newest event; 0 before the first

	// The subscriptions that have seen all in their scope and sleep.
	waiters    waiterSet
	jobWaiters map[muster.JobID]*jobWaiterSets
}

// waiterSet is a set of subscriptions.
type waiterSet map[*Subscription]struct{}

// jobWaiterSets are the sleepers of one job.
type jobWaiterSets struct {
	job   waiterSet
	tasks map[int]waiterSet
}

// New makes a bus for one life of the server. epoch must differ from those of
// earlier lives and have no "-" in it.
func New(epoch string) *Bus {
	return &Bus{epoch: epoch, waiters: waiterSet{}, jobWaiters: map[muster.JobID]*jobWaiterSets{}}
}

// EventID returns the form "epoch-seq", which Subscribe takes.
func EventID(e muster.Event) string { return e.Epoch + "-" + strconv.FormatUint(e.Seq, 10) }

// LastID returns the id of the newest event: Subscribe goes on after it.
func (b *Bus) LastID() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return EventID(muster.Event{Epoch: b.epoch, Seq: b.last})
}

// Publish numbers events and makes them known, in order. It does not block and
// does not change the slice.
func (b *Bus) Publish(events []muster.Event) {
	if len(events) == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range events {
		b.last++
		e.Epoch, e.Seq = b.epoch, b.last
		if len(b.ring) < RingSize {
			b.ring = append(b.ring, e)
		} else {
			b.ring[(b.last-1)%RingSize] = e
		}
		b.wakeMatching(&e)
	}
}

// wakeMatching wakes the sleepers whose scope an event is in. They begin with it: all before
// concerned them not.
func (b *Bus) wakeMatching(e *muster.Event) {
	b.waiters.wake(e.Seq)
	if len(b.jobWaiters) == 0 {
		return
	}
	job := jobOf(e)
	j := b.jobWaiters[job]
	if j == nil {
		return
	}
	j.job.wake(e.Seq)
	if e.Task == nil {
		for _, t := range j.tasks {
			t.wake(e.Seq)
		}
		clear(j.tasks)
	} else if t := j.tasks[e.Task.Num]; t != nil {
		t.wake(e.Seq)
		delete(j.tasks, e.Task.Num)
	}
	if len(j.tasks) == 0 {
		delete(b.jobWaiters, job)
	}
}

func (all waiterSet) wake(seq uint64) {
	if len(all) == 0 {
		return
	}
	for s := range all {
		s.next, s.waiting = seq, false
		close(s.ready)
	}
	clear(all)
}

// addWaiter adds s to the sleepers, and rouse removes it, if it is there, as one that has
// seen everything.
func (b *Bus) addWaiter(s *Subscription) {
	s.ready, s.waiting = make(chan struct{}), true
	b.waitersOf(s.scope)[s] = struct{}{}
}

func (b *Bus) removeWaiter(s *Subscription) {
	if !s.waiting {
		return
	}
	s.next, s.waiting = b.last+1, false
	delete(b.waitersOf(s.scope), s)
	if j := b.jobWaiters[s.scope.job]; j != nil {
		if s.scope.single && len(j.tasks[s.scope.task]) == 0 {
			delete(j.tasks, s.scope.task)
		}
		if len(j.job)+len(j.tasks) == 0 {
			delete(b.jobWaiters, s.scope.job)
		}
	}
}

// waitersOf returns the sleepers of a scope.
func (b *Bus) waitersOf(scope Scope) waiterSet {
	if scope.job == 0 {
		return b.waiters
	}
	j := b.jobWaiters[scope.job]
	if j == nil {
		j = &jobWaiterSets{job: waiterSet{}, tasks: map[int]waiterSet{}}
		b.jobWaiters[scope.job] = j
	}
	if !scope.single {
		return j.job
	}
	if j.tasks[scope.task] == nil {
		j.tasks[scope.task] = waiterSet{}
	}
	return j.tasks[scope.task]
}

// Subscribe watches the events in scope that want accepts (all, if it is nil) that come
// after the one with the id last. If last is "", unknown or too old, the first
// event is a resync, and the rest is what happens from now on. want is called by Next.
func (b *Bus) Subscribe(lastID string, scope Scope, accept func(*muster.Event) bool) *Subscription {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := &Subscription{bus: b, scope: scope, accept: accept, next: b.last + 1, resync: true}
	epoch, text, _ := strings.Cut(lastID, "-")
	if seq, err := strconv.ParseUint(text, 10, 64); err == nil && epoch == b.epoch && seq <= b.last && seq+1 >= b.oldest() {
		s.next, s.resync = seq+1, false
	}
	return s
}

// oldest returns the seq of the oldest event in the ring, and 1 before the first.
func (b *Bus) oldest() uint64 { return b.last - uint64(len(b.ring)) + 1 }

// Subscription is one watcher's position. It is for one goroutine.
type Subscription struct {
	bus    *Bus
	scope  Scope
	accept func(*muster.Event) bool
	next   uint64 // seq of the first event not seen
	resync bool   // to be told first

	waiting bool          // in the bus
	ready   chan struct{} // closed when it is no more
}

// Next returns one or more events, in order, and waits for the first of them. It
// returns the error of ctx when ctx ends.
func (s *Subscription) Next(ctx context.Context) ([]muster.Event, error) {
	for {
		events, ready := s.poll()
		if ready == nil {
			if events = s.filter(events); len(events) > 0 {
				return events, nil
			}
			continue
		}
		select {
		case <-ready:
		case <-ctx.Done():
			s.bus.mu.Lock()
			defer s.bus.mu.Unlock()
			s.bus.removeWaiter(s)
			return nil, ctx.Err()
		}
	}
}

// Position returns the id of the newest event that Next has looked at: all before it that the watcher wants were
// returned. It is "" while a resync is still to be returned.
func (s *Subscription) Position() string {
	if s.resync {
		return ""
	}
	return EventID(muster.Event{Epoch: s.bus.epoch, Seq: s.next - 1})
}

// filter returns those of some events that the watcher wants. A resync is always wanted.
func (s *Subscription) filter(events []muster.Event) []muster.Event {
	if s.accept == nil {
		return events
	}
	return slices.DeleteFunc(events, func(e muster.Event) bool { return e.Type != muster.EventResync && !s.accept(&e) })
}

// poll returns the next events in the subscription's scope, which may be none of those
// that it looked at; or, if there are no more, what will be closed when there is one.
func (s *Subscription) poll() ([]muster.Event, <-chan struct{}) {
	b := s.bus
	b.mu.Lock()
	defer b.mu.Unlock()
	if s.next < b.oldest() {
		s.next, s.resync = b.last+1, true
	}
	if s.resync {
		s.resync = false
		return []muster.Event{{Epoch: b.epoch, Seq: s.next - 1, Type: muster.EventResync, At: muster.NewTime(time.Now())}}, nil
	}
	if s.next > b.last {
		b.addWaiter(s)
		return nil, s.ready
	}
	var events []muster.Event
	for end := min(b.last, s.next+maxScan-1); s.next <= end && len(events) < maxBatch; s.next++ {
		if e := &b.ring[(s.next-1)%RingSize]; s.scope.contains(e) {
			events = append(events, *e)
		}
	}
	return events, nil
}
