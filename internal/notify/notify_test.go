package notify_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/notify"
)

func jobEvents(n int, job muster.JobID) []muster.Event {
	events := make([]muster.Event, n)
	for i := range events {
		events[i] = muster.Event{Type: muster.EventJob, Job: job}
	}
	return events
}

// next fails the test if nothing comes at once.
func next(t *testing.T, s *notify.Subscription) []muster.Event {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	events, err := s.Next(ctx)
	if err != nil {
		t.Fatalf("Next: %v", err)
	}
	return events
}

func TestFirstEventOfNewWatcherIsResync(t *testing.T) {
	b := notify.New("e1")
	b.Publish(jobEvents(3, 1))
	for _, last := range []string{"", "e1", "e1-", "e0-1", "e1-4", "e1-99999999999999999999", "nonsense"} {
		s := b.Subscribe(last, nil)
		got := next(t, s)
		if len(got) != 1 || got[0].Type != muster.EventResync || got[0].Seq != 3 || got[0].Epoch != "e1" {
			t.Errorf("after %q: got %+v, want one resync at 3", last, got)
		}
		b.Publish(nil)
	}
}

func TestResyncCanBeResumedFrom(t *testing.T) {
	b := notify.New("e1")
	b.Publish(jobEvents(3, 1))
	id := notify.ID(next(t, b.Subscribe("", nil))[0])
	b.Publish(jobEvents(1, 7))
	got := next(t, b.Subscribe(id, nil))
	if len(got) != 1 || got[0].Job != 7 || got[0].Seq != 4 {
		t.Fatalf("got %+v, want the one event after the resync", got)
	}
}

func TestSlowWatcherIsToldToResync(t *testing.T) {
	b := notify.New("e1")
	s := b.Subscribe("e1-0", nil)
	b.Publish(jobEvents(notify.Kept, 1))
	if got := next(t, s); got[0].Seq != 1 {
		t.Fatalf("the ring holds fewer events than promised: first is %d", got[0].Seq)
	}
	b.Publish(jobEvents(notify.Kept+5, 2))
	got := next(t, s)
	if len(got) != 1 || got[0].Type != muster.EventResync {
		t.Fatalf("got %d events, first %+v; want one resync", len(got), got[0])
	}
	b.Publish(jobEvents(1, 3))
	if got := next(t, s); got[0].Job != 3 {
		t.Fatalf("after the resync got %+v, want what is new", got[0])
	}
}

func TestUnwantedEventsNeitherWakeNorOutrun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := notify.New("e1")
		s := b.Subscribe("e1-0", func(e *muster.Event) bool { return e.Job == 2 })
		var got []muster.Event
		var err error
		done := false
		go func() {
			got, err = s.Next(t.Context())
			done = true
		}()
		synctest.Wait()
		for range 3 {
			b.Publish(jobEvents(notify.Kept, 1))
		}
		synctest.Wait()
		if done {
			t.Fatalf("woken by events that it does not want: %+v", got)
		}
		b.Publish(jobEvents(1, 2))
		synctest.Wait()
		if err != nil || len(got) != 1 || got[0].Job != 2 {
			t.Fatalf("got %+v, %v; want the one wanted event and no resync", got, err)
		}
	})
}

func TestNextEndsWithItsContext(t *testing.T) {
	b := notify.New("e1")
	s := b.Subscribe("e1-0", nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Next(ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("Next: %v, want context.Canceled", err)
	}
	b.Publish(jobEvents(1, 5))
	if got := next(t, s); got[0].Job != 5 {
		t.Fatalf("after an aborted Next got %+v", got)
	}
}

// A watcher that reads while others publish sees numbers that only grow, and
// every gap is announced by a resync.
func TestManyWatchersWhilePublishing(t *testing.T) {
	b := notify.New("e1")
	const publishers, rounds = 4, 500
	var watchers, writers sync.WaitGroup
	for w := range 8 {
		s := b.Subscribe("e1-0", func(e *muster.Event) bool { return w%2 == 0 || e.Job == 0 || e.Job == 9 })
		watchers.Go(func() {
			last, gap := uint64(0), false
			for {
				events, err := s.Next(t.Context())
				if err != nil {
					t.Errorf("Next: %v", err)
					return
				}
				for _, e := range events {
					if e.Type == muster.EventResync {
						gap, last = true, e.Seq
						continue
					}
					if e.Seq <= last || w%2 == 0 && !gap && e.Seq != last+1 {
						t.Errorf("event %d follows %d", e.Seq, last)
						return
					}
					last, gap = e.Seq, false
					if e.Job == 9 {
						return
					}
				}
			}
		})
	}
	for p := range publishers {
		writers.Go(func() {
			for range rounds {
				b.Publish(jobEvents(1+p, muster.JobID(p)))
			}
		})
	}
	writers.Wait()
	for range 2 { // the second one is for those who found a resync in place of the first
		b.Publish(jobEvents(1, 9))
	}
	watchers.Wait()
}

// Resuming after any event gives exactly the events after it, or a resync.
func TestResumeIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := notify.New("e")
		total := 0
		for range rapid.IntRange(1, 6).Draw(t, "rounds") {
			n := rapid.IntRange(1, 4_000).Draw(t, "n")
			b.Publish(jobEvents(n, 1))
			total += n
		}
		from := rapid.IntRange(0, total).Draw(t, "from")
		s := b.Subscribe(notify.ID(muster.Event{Epoch: "e", Seq: uint64(from)}), nil)
		b.Publish(jobEvents(1, 2))
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		want := uint64(from) + 1
		for {
			events, err := s.Next(ctx)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range events {
				if e.Type == muster.EventResync {
					if total+1-from <= notify.Kept {
						t.Fatalf("resync after %d of %d events, though they are kept", from, total)
					}
					return
				}
				if e.Seq != want {
					t.Fatalf("got event %d, want %d", e.Seq, want)
				}
				want++
				if e.Job == 2 {
					return
				}
			}
		}
	})
}
