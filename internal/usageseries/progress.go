package usageseries

import (
	"cmp"
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
	downsampler[muster.Point, span]
}

// span summarizes consecutive points.
type span struct {
	from, to muster.Time
	progress *float64
	step     *string
	metrics  map[string]extremes
	bytes    int // see size; 0 if unknown
}

// extremes are the lowest and the highest value of a metric, and their times.
type extremes struct {
	low, high     float64
	lowAt, highAt muster.Time
}

// NewProgressSeries makes a ProgressSeries of at most maxPoints, which must be 10 or more, and about maxBytes of JSON.
func NewProgressSeries(maxPoints, maxBytes int) *ProgressSeries {
	tooMany := func(spans []span, stride int) bool {
		limit := maxPoints - 4
		if stride > 1 {
			limit = maxPoints/2 - 2 // each takes two points, the partial one too, and the last point takes one
		}
		size := 0
		for i := range spans {
			size += spans[i].size()
		}
		return len(spans) > limit || size > maxBytes && len(spans) > 1
	}
	return &ProgressSeries{downsampler[muster.Point, span]{part: newSpan, merge: mergeSpans, tooMany: tooMany, stride: 1}}
}

// size returns the approximate size of the span in JSON.
func (s *span) size() int {
	if s.bytes > 0 {
		return s.bytes
	}
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
	s.bytes = n
	return n
}

// newSpan returns the span of one point.
func newSpan(p muster.Point) span {
	s := span{from: p.At, to: p.At, progress: p.Progress, step: p.Step, metrics: make(map[string]extremes, len(p.Metrics))}
	for name, v := range p.Metrics {
		if len(s.metrics) < maxNames {
			s.metrics[name] = extremes{v, v, p.At, p.At}
		}
	}
	return s
}

// mergeSpans merges two consecutive spans. It reuses their memory.
func mergeSpans(a, b span) span {
	s := span{from: a.from, to: b.to, progress: cmp.Or(b.progress, a.progress), step: cmp.Or(b.step, a.step), metrics: a.metrics}
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
	list := make([]muster.Point, 0, 2*len(c.parts)+3)
	for i := range c.parts {
		list = c.parts[i].points(list)
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
