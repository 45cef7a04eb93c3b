package meter

import (
	"context"
	"sync"
	"time"

	"github.com/muster-dev/muster/internal/wake"
)

// schedule calls back for each subject when it is due. It is safe for concurrent use; run must be called once.
type schedule struct {
	mu   sync.Mutex
	due  map[*subject]time.Time
	next time.Time     // when run wakes up; zero: only by wake
	wake chan struct{} // holds one token after a subject was added that is due before next
}

func newSchedule() *schedule {
	return &schedule{due: map[*subject]time.Time{}, wake: make(chan struct{}, 1)}
}

// add schedules the first callback for sub at due. Attempts are measured together, so that a new one seldom wakes up run.
func (s *schedule) add(sub *subject, due time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.due[sub] = due
	if s.next.IsZero() || due.Before(s.next) {
		s.next = due
		wake.Set(s.wake)
	}
}

// remove ends the callbacks for sub. It does not wait for one that runs.
func (s *schedule) remove(sub *subject) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.due, sub)
}

func (s *schedule) dueAt(now time.Time) (list []*subject) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for sub, due := range s.due {
		if !due.After(now) {
			list = append(list, sub)
		}
	}
	return list
}

// reschedule sets when a subject is due again, unless it was removed.
func (s *schedule) reschedule(sub *subject, due time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.due[sub]; ok {
		s.due[sub] = due
	}
}

// untilNext returns the time until the first subject is due: an hour if there is none.
func (s *schedule) untilNext() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next = time.Time{}
	for _, due := range s.due {
		if s.next.IsZero() || due.Before(s.next) {
			s.next = due
		}
	}
	if s.next.IsZero() {
		return time.Hour
	}
	return max(0, time.Until(s.next))
}

// run calls fn with the subjects that are due until ctx ends. nextDue returns when a subject is due next.
func (s *schedule) run(ctx context.Context, fn func(context.Context, time.Time, []*subject), nextDue func(*subject) time.Time) {
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
		list := s.dueAt(now)
		if len(list) > 0 {
			fn(ctx, now, list)
		}
		for _, sub := range list {
			s.reschedule(sub, nextDue(sub))
		}
		t.Reset(s.untilNext())
	}
}
