package progress

import (
	"encoding/json"
	"maps"
	"sync"
	"time"

	"github.com/muster-dev/muster"
)

const (
	// MinPointInterval is the minimum time between two points at the start of a task. It doubles with each pointIntervalDoubling bytes of
	// points, so that a task of any length fits in MaxPointBytes.
	MinPointInterval      = 100 * time.Millisecond
	pointIntervalDoubling = 2 << 20
	// MaxPointBytes is the maximum of bytes of points in the log of one attempt.
	MaxPointBytes = 32 << 20
)

// PointLogger reduces the progress of a task to points for its log. Progress between two points is merged: the last value of each name
// counts, and none is lost at the end. Its methods may be called concurrently.
type PointLogger struct {
	write func(at time.Time, data []byte)

	mu         sync.Mutex
	pending    *muster.Progress
	reportedAt time.Time // when the last part of pending was reported
	writtenAt  time.Time // when a point was last written
	timer      *time.Timer
	written    int64
	closed     bool
}

// NewPointLogger returns a PointLogger that calls write for each point: one call at a time, which must not block for long.
func NewPointLogger(write func(at time.Time, data []byte)) *PointLogger {
	return &PointLogger{write: write}
}

// Add adds progress of the task.
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
	p.pending = Merge(p.pending, r, MaxMetrics)
	if p.timer != nil {
		return
	}
	if wait := p.interval() - p.reportedAt.Sub(p.writtenAt); !p.writtenAt.IsZero() && wait > 0 {
		p.timer = time.AfterFunc(wait, p.Flush)
		return
	}
	p.flush()
}

func (p *PointLogger) interval() time.Duration {
	return MinPointInterval << (p.written / pointIntervalDoubling)
}

// flush writes the pending point at once. The lock is held.
func (p *PointLogger) flush() {
	if p.timer != nil {
		p.timer.Stop()
		p.timer = nil
	}
	if p.pending == nil {
		return
	}
	data, err := json.Marshal(muster.Point{Progress: p.pending.Progress, Step: p.pending.Step, Metrics: p.pending.Metrics})
	p.pending, p.writtenAt = nil, time.Now()
	if err != nil || p.written+int64(len(data)) > MaxPointBytes {
		return // a value that is not a number, or a task that runs for months
	}
	p.written += int64(len(data))
	p.write(p.reportedAt, data)
}

// Flush writes the pending point at once.
func (p *PointLogger) Flush() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.flush()
}

// Close writes the pending point. Later calls do nothing.
func (p *PointLogger) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	p.flush()
}

// CheckpointPoint is the data of the record of a saved checkpoint.
const CheckpointPoint = `{"checkpoint":true}`

// Merge returns old, which may be nil, with the fields of p, and with at most maxMetrics metrics. It changes neither.
func Merge(old, p *muster.Progress, maxMetrics int) *muster.Progress {
	m := &muster.Progress{}
	if old != nil {
		*m = *old
		m.Metrics = maps.Clone(old.Metrics)
	}
	m.Attempt = p.Attempt
	if p.Progress != nil {
		m.Progress = p.Progress
	}
	if p.Step != nil {
		m.Step = p.Step
	}
	for name, v := range p.Metrics {
		if m.Metrics == nil {
			m.Metrics = make(map[string]float64, len(p.Metrics))
		}
		if _, known := m.Metrics[name]; known || len(m.Metrics) < maxMetrics {
			m.Metrics[name] = v
		}
	}
	if len(p.Artifacts) > 0 {
		m.Artifacts = p.Artifacts
	}
	return m
}
