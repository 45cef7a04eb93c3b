package event

import (
	"slices"

	"github.com/muster-dev/muster"
)

// Span is the task numbers First to Last.
type Span struct{ First, Last int }

// MergeSpans returns spans sorted, with overlapping and adjacent ones merged.
func MergeSpans(spans []Span) []Span {
	var merged []Span
	for _, s := range slices.SortedFunc(slices.Values(spans), func(a, b Span) int { return a.First - b.First }) {
		if n := len(merged); n > 0 && s.First <= merged[n-1].Last+1 {
			merged[n-1].Last = max(merged[n-1].Last, s.Last)
		} else {
			merged = append(merged, s)
		}
	}
	return merged
}

// NormalizeSpans merges spans of the tasks 0 to last; nil means all of them. A span
// outside is a NotFound error.
func NormalizeSpans(spans []Span, last int) ([]Span, error) {
	if spans == nil {
		return []Span{{First: 0, Last: last}}, nil
	}
	for _, s := range spans {
		if s.First < 0 || s.First > s.Last || s.Last > last {
			return nil, muster.Errorf(muster.NotFound, "has tasks 0 to %d, not %d to %d", last, s.First, s.Last)
		}
	}
	return MergeSpans(spans), nil
}
