package eventbus_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/eventbus"
)

func jobEvents(n int, job muster.JobID) []muster.Event {
	events := make([]muster.Event, n)
	for i := range events {
		events[i] = muster.Event{Type: muster.EventJob, Job: job}
	}
	return events
}

// next fails the test unless an event is available.
func next(t *testing.T, s *eventbus.Subscription) []muster.Event {
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
	b := eventbus.New("e1")
	b.Publish(jobEvents(3, 1))
	for _, last := range []string{"", "e1", "e1-", "e0-1", "e1-4", "e1-99999999999999999999", "nonsense"} {
		s := b.Subscribe(last, eventbus.Scope{}, nil)
		got := next(t, s)
		if len(got) != 1 || got[0].Type != muster.EventResync || got[0].Seq != 3 || got[0].Epoch != "e1" {
			t.Errorf("after %q: got %+v, want one resync at 3", last, got)
		}
		b.Publish(nil)
	}
}

func TestResyncCanBeResumedFrom(t *testing.T) {
	b := eventbus.New("e1")
	b.Publish(jobEvents(3, 1))
	id := eventbus.EventID(next(t, b.Subscribe("", eventbus.Scope{}, nil))[0])
	b.Publish(jobEvents(1, 7))
	got := next(t, b.Subscribe(id, eventbus.Scope{}, nil))
	if len(got) != 1 || got[0].Job != 7 || got[0].Seq != 4 {
		t.Fatalf("got %+v, want the one event after the resync", got)
	}
}

func TestSlowWatcherResyncs(t *testing.T) {
	b := eventbus.New("e1")
	s := b.Subscribe("e1-0", eventbus.Scope{}, nil)
	b.Publish(jobEvents(eventbus.RingSize, 1))
	if got := next(t, s); got[0].Seq != 1 {
		t.Fatalf("the ring has fewer events than documented: the first is %d", got[0].Seq)
	}
	b.Publish(jobEvents(eventbus.RingSize+5, 2))
	got := next(t, s)
	if len(got) != 1 || got[0].Type != muster.EventResync {
		t.Fatalf("got %d events, first %+v; want one resync", len(got), got[0])
	}
	b.Publish(jobEvents(1, 3))
	if got := next(t, s); got[0].Job != 3 {
		t.Fatalf("after the resync got %+v, want the new event", got[0])
	}
}

func TestFilteredEventsDoNotWakeWatchers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := eventbus.New("e1")
		s := b.Subscribe("e1-0", eventbus.JobScope(2), nil)
		var got []muster.Event
		var err error
		done := false
		go func() {
			got, err = s.Next(t.Context())
			done = true
		}()
		synctest.Wait()
		for range 3 {
			b.Publish(jobEvents(eventbus.RingSize, 1))
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

func TestNextStopsWithItsContext(t *testing.T) {
	b := eventbus.New("e1")
	s := b.Subscribe("e1-0", eventbus.Scope{}, nil)
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
	b := eventbus.New("e1")
	const publishers, rounds = 4, 500
	var watchers, writers sync.WaitGroup
	for w := range 8 {
		s := b.Subscribe("e1-0", eventbus.Scope{}, func(e *muster.Event) bool { return w%2 == 0 || e.Job == 0 || e.Job == 9 })
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
	for range 2 { // the second one is for a subscriber that got a resync in place of the first
		b.Publish(jobEvents(1, 9))
	}
	watchers.Wait()
}

// Resuming after any event returns exactly the events after it, or a resync.
func TestResumeIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := eventbus.New("e")
		total := 0
		for range rapid.IntRange(1, 6).Draw(t, "rounds") {
			n := rapid.IntRange(1, 4_000).Draw(t, "n")
			b.Publish(jobEvents(n, 1))
			total += n
		}
		from := rapid.IntRange(0, total).Draw(t, "from")
		s := b.Subscribe(eventbus.EventID(muster.Event{Epoch: "e", Seq: uint64(from)}), eventbus.Scope{}, nil)
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
					if total+1-from <= eventbus.RingSize {
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

// Publish does not wait for filters: the engine calls it, and subscribers are
// many.
func TestPublishDoesNotWaitForFilters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := eventbus.New("e1")
		release := make(chan struct{})
		filtered := 0
		s := b.Subscribe("e1-0", eventbus.JobScope(1), func(*muster.Event) bool {
			<-release
			filtered++
			return true
		})
		var got []muster.Event
		go func() {
			var err error
			if got, err = s.Next(t.Context()); err != nil {
				t.Error(err)
			}
		}()
		synctest.Wait()
		published := false
		go func() {
			b.Publish(jobEvents(100, 2))
			b.Publish(jobEvents(100, 1))
			b.Publish(jobEvents(100, 2))
			published = true
		}()
		synctest.Wait()
		if !published {
			t.Error("Publish waits for a watcher's filter")
		}
		close(release)
		synctest.Wait()
		if len(got) != 100 || filtered != 100 {
			t.Errorf("got %d events of %d examined, want the 100 of the job", len(got), filtered)
		}
	})
}

// A subscriber gets all events in its scope, in order, whether it waits, reads late or
// cancels a wait in between.
func TestScopes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := eventbus.New("e")
		genJob := rapid.IntRange(1, 3)
		genTask := rapid.IntRange(0, 2)
		type watcher struct {
			scope eventbus.Scope
			has   func(muster.Event) bool
			sub   *eventbus.Subscription
			want  []uint64
			got   []uint64
		}
		var watchers []*watcher
		for range rapid.IntRange(1, 6).Draw(t, "watchers") {
			w := &watcher{has: func(muster.Event) bool { return true }}
			job, num := muster.JobID(genJob.Draw(t, "job")), genTask.Draw(t, "task")
			switch rapid.IntRange(0, 2).Draw(t, "scope") {
			case 1:
				w.scope, w.has = eventbus.JobScope(job), func(e muster.Event) bool { return e.Job == job }
			case 2:
				w.scope = eventbus.TaskScope(muster.TaskID{Job: job, Num: num})
				w.has = func(e muster.Event) bool { return e.Job == job && (e.Task == nil || e.Task.Num == num) }
			}
			w.sub = b.Subscribe("e-0", w.scope, nil)
			watchers = append(watchers, w)
		}
		seq := uint64(0)
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			events := make([]muster.Event, rapid.IntRange(1, 600).Draw(t, "events"))
			job, num, whole := muster.JobID(genJob.Draw(t, "job")), genTask.Draw(t, "task"), rapid.Bool().Draw(t, "whole")
			for i := range events {
				events[i] = muster.Event{Type: muster.EventJob, Job: job}
				if !whole {
					events[i].Type, events[i].Task = muster.EventTask, &muster.TaskID{Job: job, Num: num}
				}
				seq++
				for _, w := range watchers {
					if w.has(events[i]) {
						w.want = append(w.want, seq)
					}
				}
			}
			b.Publish(events)
			w := rapid.SampledFrom(watchers).Draw(t, "reader")
			over, cancel := context.WithCancel(context.Background())
			cancel() // it reads all events and waits
			for {
				got, err := w.sub.Next(over)
				if err != nil {
					break
				}
				for _, e := range got {
					w.got = append(w.got, e.Seq)
				}
			}
			if !slices.Equal(w.got, w.want) {
				t.Fatalf("a watcher of %+v got %v, want %v", w.scope, w.got, w.want)
			}
		}
	})
}

// BenchmarkPublish publishes 10,000 events of tasks with 100 watchers of other tasks of the job.
func BenchmarkPublish(b *testing.B) {
	bus := eventbus.New("e")
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	for i := range 100 {
		s := bus.Subscribe("e-0", eventbus.TaskScope(muster.TaskID{Job: 1, Num: 100_000 + i}), nil)
		go func() { _, _ = s.Next(ctx) }()
	}
	events := make([]muster.Event, 10_000)
	for i := range events {
		events[i] = muster.Event{Type: muster.EventTask, Job: 1, Task: &muster.TaskID{Job: 1, Num: i}}
	}
	for b.Loop() {
		bus.Publish(events)
	}
}
