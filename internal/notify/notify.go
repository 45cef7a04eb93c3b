// Package notify fans committed events out to those who watch.
//
// The bus keeps the last Kept events in a ring. A subscription is only a
// position in it: publishing never blocks and costs no more for many watchers that
// sleep than a look at their filters; a watcher that is too slow finds its
// position gone from the ring and gets one muster.EventResync in place of what it
// missed. A subscription that nobody reads any more holds nothing and needs no closing.
package notify

import (
	"context"
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
)

// Bus is the fan-out. Its methods may be called at the same time.
type Bus struct {
	epoch string

	mu      sync.Mutex
	ring    []muster.Event // event seq is at (seq-1) % Kept
	last    uint64         // seq of the newest event; 0 before the first
	waiting map[*Subscription]struct{}
}

// New makes a bus for one life of the server. epoch must differ from those of
// earlier lives and have no "-" in it.
func New(epoch string) *Bus {
	return &Bus{epoch: epoch, waiting: map[*Subscription]struct{}{}}
}

// ID returns the form "epoch-seq", which Subscribe takes.
func ID(e muster.Event) string { return e.Epoch + "-" + strconv.FormatUint(e.Seq, 10) }

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
	}
	for s := range b.waiting {
		if s.wants(events) {
			delete(b.waiting, s)
			close(s.wake)
		} else {
			s.next = b.last + 1 // it had seen all before, and wants none of these
		}
	}
}

// Subscribe watches the events that want accepts (all, if it is nil) that come
// after the one with the id last. If last is "", unknown or too old, the first
// event is a resync, and the rest is what happens from now on. want must be quick and must not
// call the bus.
func (b *Bus) Subscribe(last string, want func(*muster.Event) bool) *Subscription {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := &Subscription{bus: b, want: want, next: b.last + 1, resync: true}
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
	want   func(*muster.Event) bool
	next   uint64 // seq of the first event not seen
	resync bool   // to be told first
	wake   chan struct{}
}

func (s *Subscription) wants(events []muster.Event) bool {
	if s.want == nil {
		return true
	}
	for i := range events {
		if s.want(&events[i]) {
			return true
		}
	}
	return false
}

// Next returns one or more events, in order, and waits for the first of them. It
// returns the error of ctx when ctx ends.
func (s *Subscription) Next(ctx context.Context) ([]muster.Event, error) {
	for {
		events, wake := s.take()
		if len(events) > 0 {
			return events, nil
		}
		select {
		case <-wake:
		case <-ctx.Done():
			s.bus.mu.Lock()
			delete(s.bus.waiting, s)
			s.bus.mu.Unlock()
			return nil, ctx.Err()
		}
	}
}

// take returns what is there, or, if that is nothing, what will be closed when
// there is something.
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
	var events []muster.Event
	for ; s.next <= b.last && len(events) < batch; s.next++ {
		if e := &b.ring[(s.next-1)%Kept]; s.want == nil || s.want(e) {
			events = append(events, *e)
		}
	}
	if len(events) == 0 {
		s.wake = make(chan struct{})
		b.waiting[s] = struct{}{}
	}
	return events, s.wake
}
