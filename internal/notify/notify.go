// Package notify fans committed events out to those who watch.
//
// The bus keeps the last Kept events in a ring. A subscription is only a
// position in it: publishing never blocks, runs no code of the watchers, and finds those that
// sleep and are concerned by the jobs and tasks of the events. Each watcher filters on its own
// goroutine; one that is too slow finds its position gone from the ring and gets one
// muster.EventResync in place of what it missed. A subscription that nobody reads any more holds
// nothing and needs no closing.
package notify

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
	// Kept is how many events can be asked for again.
	Kept = 10_000
	// batch is how many events one Next returns at most.
	batch = 256
	// scan is how many events are looked at before the bus is given free for a moment.
	scan = 1024
)

// Scope bounds what a subscription is about. The zero value is everything.
type Scope struct {
	job  muster.JobID // 0 means all
	task int          // its number in the job, if one
	one  bool
}

// OfJob is everything about a job and its tasks.
func OfJob(id muster.JobID) Scope { return Scope{job: id} }

// OfTask is everything about a task, and about its job as a whole: tasks that wait in a
// large array change without events of their own.
func OfTask(id muster.TaskID) Scope { return Scope{job: id.Job, task: id.Num, one: true} }

// jobOf returns the job that an event is about; 0 if it is about none.
func jobOf(e *muster.Event) muster.JobID {
	if e.Job == 0 && e.Task != nil {
		return e.Task.Job
	}
	return e.Job
}

// has reports whether an event is in the scope.
func (s Scope) has(e *muster.Event) bool {
	return s.job == 0 || s.job == jobOf(e) && (!s.one || e.Task == nil || e.Task.Num == s.task)
}

// Bus is the fan-out. Its methods may be called at the same time.
type Bus struct {
	epoch string

	mu   sync.Mutex
	ring []muster.Event // event seq is at (seq-1) % Kept
	last uint64         // seq of the newest event; 0 before the first

	// The subscriptions that have seen all in their scope and sleep.
	all  sleepers
	jobs map[muster.JobID]*ofJob
}

// sleepers is a set of subscriptions.
type sleepers map[*Subscription]struct{}

// ofJob are the sleepers of one job.
type ofJob struct {
	whole sleepers
	tasks map[int]sleepers
}

// New makes a bus for one life of the server. epoch must differ from those of
// earlier lives and have no "-" in it.
func New(epoch string) *Bus {
	return &Bus{epoch: epoch, all: sleepers{}, jobs: map[muster.JobID]*ofJob{}}
}

// ID returns the form "epoch-seq", which Subscribe takes.
func ID(e muster.Event) string { return e.Epoch + "-" + strconv.FormatUint(e.Seq, 10) }

// Last returns the id of the newest event: Subscribe goes on after it.
func (b *Bus) Last() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return ID(muster.Event{Epoch: b.epoch, Seq: b.last})
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
		if len(b.ring) < Kept {
			b.ring = append(b.ring, e)
		} else {
			b.ring[(b.last-1)%Kept] = e
		}
		b.wake(&e)
	}
}

// wake wakes the sleepers whose scope an event is in. They begin with it: all before
// concerned them not.
func (b *Bus) wake(e *muster.Event) {
	b.all.wake(e.Seq)
	if len(b.jobs) == 0 {
		return
	}
	job := jobOf(e)
	j := b.jobs[job]
	if j == nil {
		return
	}
	j.whole.wake(e.Seq)
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
		delete(b.jobs, job)
	}
}

func (all sleepers) wake(seq uint64) {
	if len(all) == 0 {
		return
	}
	for s := range all {
		s.next, s.asleep = seq, false
		close(s.woken)
	}
	clear(all)
}

// sleep adds s to the sleepers, and rouse removes it, if it is there, as one that has
// seen everything.
func (b *Bus) sleep(s *Subscription) {
	s.woken, s.asleep = make(chan struct{}), true
	b.where(s.scope)[s] = struct{}{}
}

func (b *Bus) rouse(s *Subscription) {
	if !s.asleep {
		return
	}
	s.next, s.asleep = b.last+1, false
	delete(b.where(s.scope), s)
	if j := b.jobs[s.scope.job]; j != nil {
		if s.scope.one && len(j.tasks[s.scope.task]) == 0 {
			delete(j.tasks, s.scope.task)
		}
		if len(j.whole)+len(j.tasks) == 0 {
			delete(b.jobs, s.scope.job)
		}
	}
}

// where returns the sleepers of a scope.
func (b *Bus) where(scope Scope) sleepers {
	if scope.job == 0 {
		return b.all
	}
	j := b.jobs[scope.job]
	if j == nil {
		j = &ofJob{whole: sleepers{}, tasks: map[int]sleepers{}}
		b.jobs[scope.job] = j
	}
	if !scope.one {
		return j.whole
	}
	if j.tasks[scope.task] == nil {
		j.tasks[scope.task] = sleepers{}
	}
	return j.tasks[scope.task]
}

// Subscribe watches the events in scope that want accepts (all, if it is nil) that come
// after the one with the id last. If last is "", unknown or too old, the first
// event is a resync, and the rest is what happens from now on. want is called by Next.
func (b *Bus) Subscribe(last string, scope Scope, want func(*muster.Event) bool) *Subscription {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := &Subscription{bus: b, scope: scope, want: want, next: b.last + 1, resync: true}
	epoch, text, _ := strings.Cut(last, "-")
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
	want   func(*muster.Event) bool
	next   uint64 // seq of the first event not seen
	resync bool   // to be told first

	asleep bool          // in the bus
	woken  chan struct{} // closed when it is no more
}

// Next returns one or more events, in order, and waits for the first of them. It
// returns the error of ctx when ctx ends.
func (s *Subscription) Next(ctx context.Context) ([]muster.Event, error) {
	for {
		events, woken := s.take()
		if woken == nil {
			if events = s.wanted(events); len(events) > 0 {
				return events, nil
			}
			continue
		}
		select {
		case <-woken:
		case <-ctx.Done():
			s.bus.mu.Lock()
			defer s.bus.mu.Unlock()
			s.bus.rouse(s)
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
	return ID(muster.Event{Epoch: s.bus.epoch, Seq: s.next - 1})
}

// wanted returns those of some events that the watcher wants. A resync is always wanted.
func (s *Subscription) wanted(events []muster.Event) []muster.Event {
	if s.want == nil {
		return events
	}
	return slices.DeleteFunc(events, func(e muster.Event) bool { return e.Type != muster.EventResync && !s.want(&e) })
}

// take returns the next events in the subscription's scope, which may be none of those
// that it looked at; or, if there are no more, what will be closed when there is one.
func (s *Subscription) take() ([]muster.Event, <-chan struct{}) {
	b := s.bus
	b.mu.Lock()
	defer b.mu.Unlock()
	if s.next < b.oldest() {
		s.next, s.resync = b.last+1, true
	}
	if s.resync {
		s.resync = false
		return []muster.Event{{Epoch: b.epoch, Seq: s.next - 1, Type: muster.EventResync, At: muster.TimeOf(time.Now())}}, nil
	}
	if s.next > b.last {
		b.sleep(s)
		return nil, s.woken
	}
	var events []muster.Event
	for end := min(b.last, s.next+scan-1); s.next <= end && len(events) < batch; s.next++ {
		if e := &b.ring[(s.next-1)%Kept]; s.scope.has(e) {
			events = append(events, *e)
		}
	}
	return events, nil
}
