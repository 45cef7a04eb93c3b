package muster

import "slices"

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
