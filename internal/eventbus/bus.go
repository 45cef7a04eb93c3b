// Package eventbus delivers committed events to subscribers.
//
// The bus keeps the last events in a ring. A subscription is only a
// position in it: publishing never blocks, runs no code of subscribers, and finds the waiting
// ones by the jobs and tasks of the events. Each subscriber filters on its own
// goroutine; one that is too slow, so that its position is no longer in the ring, gets one
// muster.EventResync for the events that it missed. An unused subscription holds no
// resources and needs no closing.
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
	// RingSize is how many events a subscriber can read again, by default.
	RingSize = 10_000
	// maxBatch is how many events one Next returns at most.
	maxBatch = 256
	// maxScan is how many events one hold of the lock covers at most.
	maxScan = 1024
)

// Scope selects events by job or task. The zero value is everything.
type Scope struct {
	job    muster.JobID // 0 means all
	task   int          // its number in the job, if one
	single bool
}

// JobScope selects the events of a job and its tasks.
func JobScope(id muster.JobID) Scope { return Scope{job: id} }

// TaskScope selects the events of a task, and of its job: waiting tasks of a
// large array change without events of their own.
func TaskScope(id muster.TaskID) Scope { return Scope{job: id.Job, task: id.Num, single: true} }

// jobOf returns the job of an event, or 0.
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

// Bus delivers events. Its methods may be called at the same time.
type Bus struct {
	epoch string
	size  int // of the ring

	mu   sync.Mutex
	ring []muster.Event // event seq is at (seq-1) % size
	last uint64         // seq of the newest event; 0 before the first

	// The subscriptions that have seen all events in their scope and wait.
	waiters    waiterSet
	jobWaiters map[muster.JobID]*jobWaiterSets
}

type waiterSet map[*Subscription]struct{}

// jobWaiterSets are the waiting subscriptions of one job.
type jobWaiterSets struct {
	job   waiterSet
	tasks map[int]waiterSet
}

// New returns a bus for one incarnation of the server. epoch must differ from those of
// earlier ones and must not contain "-".
func New(epoch string) *Bus { return NewSized(epoch, RingSize) }

// NewSized is New with a ring of at least one event.
func NewSized(epoch string, size int) *Bus {
	return &Bus{epoch: epoch, size: max(size, 1), waiters: waiterSet{}, jobWaiters: map[muster.JobID]*jobWaiterSets{}}
}

// EventID returns the form "epoch-seq", which Subscribe takes.
func EventID(e muster.Event) string { return e.Epoch + "-" + strconv.FormatUint(e.Seq, 10) }

// LastID returns the id of the newest event, for Subscribe.
func (b *Bus) LastID() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return EventID(muster.Event{Epoch: b.epoch, Seq: b.last})
}

// Publish numbers events and delivers them in order. It does not block and
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
		if len(b.ring) < b.size {
			b.ring = append(b.ring, e)
		} else {
			b.ring[(b.last-1)%uint64(b.size)] = e
		}
		b.wakeMatching(&e)
	}
}

// wakeMatching wakes the waiting subscriptions whose scope has the event. They continue with it: no earlier
// event is in their scope.
func (b *Bus) wakeMatching(e *muster.Event) {
	b.waiters.wake(e.Seq)
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
	for s := range all {
		s.next, s.waiting = seq, false
		close(s.ready)
	}
	clear(all)
}

// addWaiter adds s to the waiting subscriptions of its scope. The caller holds b.mu.
func (b *Bus) addWaiter(s *Subscription) {
	s.ready, s.waiting = make(chan struct{}), true
	b.waitersOf(s.scope)[s] = struct{}{}
}

// removeWaiter removes s if it waits. It has seen all events. The caller holds b.mu.
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

// waitersOf returns the waiting subscriptions of a scope.
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

// Subscribe returns a subscription to the events in scope after the one with lastID
// for which accept returns true (all, if it is nil). If lastID is "", unknown or too old, the first
// event is a resync, and the others are new ones. Next calls accept.
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

// Subscription is the position of one subscriber. One goroutine uses it.
type Subscription struct {
	bus    *Bus
	scope  Scope
	accept func(*muster.Event) bool
	next   uint64 // seq of the first event not seen
	resync bool   // the next event is a resync

	waiting bool          // it is in the bus's sets
	ready   chan struct{} // closed when waiting ends
}

// Next waits for an event and returns one or more, in order. It
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

// Position returns the id of the newest event that Next has processed: it has returned all accepted events up to
// it. It is "" before a pending resync.
func (s *Subscription) Position() string {
	if s.resync {
		return ""
	}
	return EventID(muster.Event{Epoch: s.bus.epoch, Seq: s.next - 1})
}

// filter returns the accepted events, and every resync.
func (s *Subscription) filter(events []muster.Event) []muster.Event {
	if s.accept == nil {
		return events
	}
	return slices.DeleteFunc(events, func(e muster.Event) bool { return e.Type != muster.EventResync && !s.accept(&e) })
}

// poll returns the next events in the subscription's scope, possibly none;
// or, if it has seen all events, a channel that is closed when there is one.
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
		if e := &b.ring[(s.next-1)%uint64(b.size)]; s.scope.contains(e) {
			events = append(events, *e)
		}
	}
	return events, nil
}
