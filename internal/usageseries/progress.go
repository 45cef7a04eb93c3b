package usageseries

import (
	"maps"

	"github.com/muster-dev/muster"
)

// Approximate sizes in JSON of a point, and of a value without its name.
const (
	pointBytes = 96
	valueBytes = 28
)

// maxNames limits the metrics of one point, whatever a worker sends.
const maxNames = 256

// ProgressSeries holds the progress reports of a task in a limited number of points and bytes of JSON. Beyond that,
// two points replace a span of consecutive ones: together they have the lowest and the highest value of each
// metric, in order, so that no peak is lost, and the last progress and step. The last point is always exact.
type ProgressSeries struct {
	maxPoints  int
	maxBytes   int
	stride     int    // points in one span
	spans      []span // complete ones
	size       int    // of spans, in bytes of JSON
	partial    span
	partialLen int // points in partial
	last       muster.Point
	n          int
}

// span summarizes consecutive points.
type span struct {
	from, to muster.Time
	progress *float64
	step     *string
	metrics  map[string]extremes
}

// extremes are the lowest and the highest value of a metric, and their times.
type extremes struct {
	low, high     float64
	lowAt, highAt muster.Time
}

// NewProgressSeries makes a ProgressSeries of at most maxPoints, which must be 10 or more, and about maxBytes of JSON.
func NewProgressSeries(maxPoints, maxBytes int) *ProgressSeries {
	return &ProgressSeries{maxPoints: maxPoints, maxBytes: maxBytes, stride: 1}
}

// Len returns how many points were added.
func (c *ProgressSeries) Len() int { return c.n }

// Add adds the next point.
func (c *ProgressSeries) Add(p muster.Point) {
	if c.n++; c.n > 1 {
		c.push(&c.last)
	}
	c.last = p
}

func (c *ProgressSeries) push(p *muster.Point) {
	if c.partialLen++; c.partialLen == 1 {
		c.partial = span{from: p.At, metrics: make(map[string]extremes, len(p.Metrics))}
	}
	c.partial.add(p)
	if c.partialLen < c.stride {
		return
	}
	c.spans, c.size, c.partialLen = append(c.spans, c.partial), c.size+c.partial.size(), 0
	for len(c.spans) > c.maxSpans() || c.size > c.maxBytes && len(c.spans) > 1 {
		c.halve()
	}
}

// maxSpans returns how many spans there may be: each takes two points, the partial one too, and the last point takes one.
func (c *ProgressSeries) maxSpans() int {
	if c.stride == 1 {
		return c.maxPoints - 4
	}
	return c.maxPoints/2 - 2
}

// halve merges the spans in pairs.
func (c *ProgressSeries) halve() {
	if len(c.spans)%2 == 1 {
		last := c.spans[len(c.spans)-1]
		if c.partialLen > 0 {
			last = mergeSpans(last, c.partial)
		}
		c.partial, c.partialLen = last, c.partialLen+c.stride
	}
	half := c.spans[:0]
	c.size = 0
	for i := 0; i+1 < len(c.spans); i += 2 {
		s := mergeSpans(c.spans[i], c.spans[i+1])
		half, c.size = append(half, s), c.size+s.size()
	}
	clear(c.spans[len(half):])
	c.spans, c.stride = half, 2*c.stride
}

// size returns the approximate size of the span in JSON.
func (s *span) size() int {
	n := pointBytes
	for name := range s.metrics {
		n += len(name) + valueBytes
	}
	if s.from != s.to {
		n *= 2
	}
	if s.step != nil {
		n += len(*s.step)
	}
	return n
}

func (s *span) add(p *muster.Point) {
	s.to = p.At
	if p.Progress != nil {
		s.progress = p.Progress
	}
	if p.Step != nil {
		s.step = p.Step
	}
	for name, v := range p.Metrics {
		e, known := s.metrics[name]
		switch {
		case !known && len(s.metrics) >= maxNames:
			continue
		case !known:
			e = extremes{v, v, p.At, p.At}
		case v < e.low:
			e.low, e.lowAt = v, p.At
		case v > e.high:
			e.high, e.highAt = v, p.At
		}
		s.metrics[name] = e
	}
}

// mergeSpans merges two consecutive spans. It reuses their memory.
func mergeSpans(a, b span) span {
	s := span{from: a.from, to: b.to, progress: a.progress, step: a.step, metrics: a.metrics}
	if b.progress != nil {
		s.progress = b.progress
	}
	if b.step != nil {
		s.step = b.step
	}
	for name, e := range b.metrics {
		old, known := s.metrics[name]
		switch {
		case !known && len(s.metrics) >= maxNames:
			continue
		case known:
			if old.low <= e.low {
				e.low, e.lowAt = old.low, old.lowAt
			}
			if old.high >= e.high {
				e.high, e.highAt = old.high, old.highAt
			}
		}
		s.metrics[name] = e
	}
	return s
}

// points appends the points of the span.
func (s *span) points(list []muster.Point) []muster.Point {
	first, second := muster.Point{At: s.from, Metrics: map[string]float64{}}, muster.Point{At: s.to, Progress: s.progress, Step: s.step, Metrics: map[string]float64{}}
	for name, e := range s.metrics {
		switch {
		case e.low == e.high:
			second.Metrics[name] = e.high
		case e.lowAt < e.highAt:
			first.Metrics[name], second.Metrics[name] = e.low, e.high
		default:
			first.Metrics[name], second.Metrics[name] = e.high, e.low
		}
	}
	if len(first.Metrics) > 0 && first.At < second.At {
		list = append(list, first)
	}
	return append(list, second)
}

// Points returns the series, never nil.
func (c *ProgressSeries) Points() []muster.Point {
	list := make([]muster.Point, 0, min(c.n, c.maxPoints))
	for i := range c.spans {
		list = c.spans[i].points(list)
	}
	if c.partialLen > 0 {
		list = c.partial.points(list)
	}
	if c.n > 0 {
		last := c.last
		last.Metrics = maps.Clone(last.Metrics)
		list = append(list, last)
	}
	return list
}
