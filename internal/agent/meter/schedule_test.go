package meter

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// calls records the callbacks for subjects.
type calls struct {
	mu    sync.Mutex
	began time.Time
	at    map[*subject][]time.Duration
	hook  func(*subject) // called within a callback; may be nil
}

func (c *calls) record(_ context.Context, now time.Time, list []*subject) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, sub := range list {
		c.at[sub] = append(c.at[sub], now.Sub(c.began))
		if c.hook != nil {
			c.hook(sub)
		}
	}
}

func (c *calls) check(t *testing.T, sub *subject, at ...time.Duration) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.Equal(c.at[sub], at) {
		t.Errorf("callbacks at %v, want %v", c.at[sub], at)
	}
}

// start starts s, whose subjects are due once per interval.
func start(t *testing.T, s *schedule, interval time.Duration) *calls {
	t.Helper()
	c := &calls{began: time.Now(), at: map[*subject][]time.Duration{}}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.run(ctx, c.record, func(*subject) time.Time { return time.Now().Add(interval) })
	}()
	t.Cleanup(func() { cancel(); <-done })
	return c
}

func TestSubjectsAreSampledWhenDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, late, soon := newSchedule(), &subject{}, &subject{}
		c := start(t, s, 10*time.Second)
		synctest.Wait() // it sleeps: there is no subject
		s.add(late, c.began.Add(8*time.Second))
		synctest.Wait() // it sleeps until then
		s.add(soon, c.began.Add(3*time.Second))
		time.Sleep(25 * time.Second)
		synctest.Wait()
		c.check(t, soon, 3*time.Second, 13*time.Second, 23*time.Second)
		c.check(t, late, 8*time.Second, 18*time.Second)
	})
}

func TestRemovedSubjectIsNotSampled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, first, second, third := newSchedule(), &subject{}, &subject{}, &subject{}
		c := start(t, s, time.Second)
		c.hook = func(sub *subject) {
			if sub == second {
				s.remove(sub)
			}
		}
		for i, sub := range []*subject{first, second, third} {
			s.add(sub, c.began.Add(time.Duration(i+1)*time.Second))
		}
		s.remove(first)
		s.remove(first) // does nothing
		time.Sleep(5*time.Second + time.Millisecond)
		synctest.Wait()
		c.check(t, first)
		c.check(t, second, 2*time.Second)
		c.check(t, third, 3*time.Second, 4*time.Second, 5*time.Second)
	})
}

// BenchmarkWatch adds and removes an attempt while 1,000 others are not due.
func BenchmarkWatch(b *testing.B) {
	s := newSchedule()
	for range 1000 {
		s.add(&subject{}, time.Now().Add(time.Hour))
	}
	for b.Loop() {
		sub := &subject{}
		s.add(sub, time.Now().Add(2*time.Hour))
		s.remove(sub)
	}
}
