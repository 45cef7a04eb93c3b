package run

import (
	"encoding/json"
	"maps"
	"sync"
	"time"

	"github.com/muster-dev/muster"
)

const (
	// MinPointInterval is the least time between two points of a task at its beginning. It doubles with each pointIntervalDoubling bytes of points,
	// so that a task of any length has points in MaxPointBytes.
	MinPointInterval      = 100 * time.Millisecond
	pointIntervalDoubling = 2 << 20
	// MaxPointBytes is the most bytes of points in the log of one attempt.
	MaxPointBytes = 32 << 20
)

// PointLogger thins what a task reports into points for its log. What is reported between two of them is merged: the last value of each
// name counts, and none is lost at the end. Its methods may be called at the same time.
type PointLogger struct {
	write func(at time.Time, data []byte)

	mu         sync.Mutex
	pending    *muster.Point
	reportedAt time.Time // when the last part of pending was reported
	writtenAt  time.Time // when a point was last written
	timer      *time.Timer
	written    int64
	closed     bool
}

// NewPointLogger returns Points that are written by write: one call at a time, which must not take long.
func NewPointLogger(write func(at time.Time, data []byte)) *PointLogger {
	return &PointLogger{write: write}
}

// Add takes what a task reports.
func (p *PointLogger) Add(r *muster.Progress) {
	if r.Progress == nil && r.Step == nil && len(r.Metrics) == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	p.reportedAt = time.Now()
	if p.pending == nil {
		p.pending = &muster.Point{Progress: r.Progress, Step: r.Step, Metrics: maps.Clone(r.Metrics)}
	} else {
		p.merge(r)
	}
	if p.timer != nil {
		return
	}
	if wait := p.interval() - p.reportedAt.Sub(p.writtenAt); !p.writtenAt.IsZero() && wait > 0 {
		p.timer = time.AfterFunc(wait, p.onTimer)
		return
	}
	p.flush()
}

func (p *PointLogger) merge(r *muster.Progress) {
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

func (p *PointLogger) interval() time.Duration {
	return MinPointInterval << (p.written / pointIntervalDoubling)
}

// onTimer writes what came since the last point.
func (p *PointLogger) onTimer() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.timer = nil
	if !p.closed {
		p.flush()
	}
}

// flush writes what is pending. The lock is held.
func (p *PointLogger) flush() {
	if p.pending == nil {
		return
	}
	data, err := json.Marshal(p.pending)
	p.pending, p.writtenAt = nil, time.Now()
	if err != nil || p.written+int64(len(data)) > MaxPointBytes {
		return // a value that is no number, or a task of months
	}
	p.written += int64(len(data))
	p.write(p.reportedAt, data)
}

// Flush writes what is pending, however little time has passed.
func (p *PointLogger) Flush() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.flush()
	}
}

// Close writes what is pending. Nothing is written after it.
func (p *PointLogger) Close() {
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

// CheckpointPoint is the data of a record that says that the task's checkpoint was saved.
func CheckpointPoint() []byte { return []byte(`{"checkpoint":true}`) }
