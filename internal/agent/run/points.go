package run

import (
	"encoding/json"
	"maps"
	"sync"
	"time"

	"github.com/muster-dev/muster"
)

const (
	// PointSpacing is the least time between two points of a task at its beginning. It doubles with each pointStep bytes of points,
	// so that a task of any length has points in PointRoom.
	PointSpacing = 100 * time.Millisecond
	pointStep    = 2 << 20
	// PointRoom is the most bytes of points in the log of one attempt.
	PointRoom = 32 << 20
)

// Points thins what a task reports into points for its log. What is reported between two of them is merged: the last value of each
// name counts, and none is lost at the end. Its methods may be called at the same time.
type Points struct {
	write func(at time.Time, data []byte)

	mu      sync.Mutex
	pending *muster.Point
	at      time.Time // when the last part of pending was reported
	last    time.Time // when a point was last written
	timer   *time.Timer
	written int64
	closed  bool
}

// NewPoints returns Points that are written by write: one call at a time, which must not take long.
func NewPoints(write func(at time.Time, data []byte)) *Points { return &Points{write: write} }

// Add takes what a task reports.
func (p *Points) Add(r *muster.Progress) {
	if r.Progress == nil && r.Step == nil && len(r.Metrics) == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	p.at = time.Now()
	if p.pending == nil {
		p.pending = &muster.Point{Progress: r.Progress, Step: r.Step, Metrics: maps.Clone(r.Metrics)}
	} else {
		p.merge(r)
	}
	if p.timer != nil {
		return
	}
	if wait := p.spacing() - p.at.Sub(p.last); !p.last.IsZero() && wait > 0 {
		p.timer = time.AfterFunc(wait, p.due)
		return
	}
	p.flush()
}

func (p *Points) merge(r *muster.Progress) {
	if r.Progress != nil {
		p.pending.Progress = r.Progress
	}
	if r.Step != nil {
		p.pending.Step = r.Step
	}
	for name, v := range r.Metrics {
		if p.pending.Metrics == nil {
			p.pending.Metrics = map[string]float64{}
		}
		if _, known := p.pending.Metrics[name]; known || len(p.pending.Metrics) < MaxMetrics {
			p.pending.Metrics[name] = v
		}
	}
}

func (p *Points) spacing() time.Duration { return PointSpacing << (p.written / pointStep) }

// due writes what came since the last point.
func (p *Points) due() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.timer = nil
	if !p.closed {
		p.flush()
	}
}

// flush writes what is pending. The lock is held.
func (p *Points) flush() {
	if p.pending == nil {
		return
	}
	data, err := json.Marshal(p.pending)
	p.pending, p.last = nil, time.Now()
	if err != nil || p.written+int64(len(data)) > PointRoom {
		return // a value that is no number, or a task of months
	}
	p.written += int64(len(data))
	p.write(p.at, data)
}

// Flush writes what is pending, however little time has passed.
func (p *Points) Flush() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.flush()
	}
}

// Close writes what is pending. Nothing is written after it.
func (p *Points) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	p.closed = true
	if p.timer != nil {
		p.timer.Stop()
	}
	p.flush()
}

// SavedPoint is the data of a record that says that the task's checkpoint was saved.
func SavedPoint() []byte { return []byte(`{"checkpoint":true}`) }
