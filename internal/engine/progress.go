package engine

import (
	"sync"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/sched/effect"
)

// latest is the progress of running tasks that is newer than their rows in the store.
type latest struct {
	mu sync.RWMutex
	of map[muster.TaskID]effect.Progress
}

// take adds what a batch reported. Rows that were written have all of theirs.
func (l *latest) take(reported []effect.Progress, written []muster.Task) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range reported {
		l.of[reported[i].Task] = reported[i]
	}
	if len(l.of) == 0 {
		return
	}
	for i := range written {
		delete(l.of, written[i].ID)
	}
}

func (l *latest) clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.of)
}

// Latest sets the progress of a task that was read from the store to what its attempt last reported: that is
// written every few seconds only.
func (e *Engine) Latest(t *muster.Task) {
	l := &e.latest
	l.mu.RLock()
	defer l.mu.RUnlock()
	if p, ok := l.of[t.ID]; ok && p.Attempt == t.Attempt && !t.State.Final() {
		t.Progress, t.Step, t.Metrics = p.Progress, p.Step, p.Metrics
	}
}
