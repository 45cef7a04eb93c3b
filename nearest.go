package muster

import (
	"slices"
	"strings"
)

// Nearest returns the candidate with the smallest edit distance to name if the
// distance is small for name's length, else one that begins or ends with name,
// else "". Names over MaxNameSize bytes are not compared. Case does not matter.
func Nearest(name string, candidates []string) string {
	if len(name) > MaxNameSize {
		return ""
	}
	best := NearestWithin(name, candidates, len(name)/3+1)
	if best == "" && len(name) >= 3 {
		for _, c := range candidates {
			if lower := strings.ToLower(c); strings.HasPrefix(lower, strings.ToLower(name)) || strings.HasSuffix(lower, strings.ToLower(name)) {
				return c
			}
		}
	}
	return best
}

// NearestWithin returns the candidate with the smallest edit distance to name, "" if none is within the number of edits. Names over
// MaxNameSize bytes are not compared. Case does not matter.
func NearestWithin(name string, candidates []string, edits int) string {
	if len(name) > MaxNameSize {
		return ""
	}
	best, limit := "", edits+1
	for _, c := range candidates {
		if d := distance(strings.ToLower(name), strings.ToLower(c), limit); d < limit {
			best, limit = c, d
		}
	}
	return best
}

// distance returns the edit distance of a and b: insertions, deletions,
// replacements and swaps of neighbours. If it is limit or more, the result is any
// number from limit on.
func distance(a, b string, limit int) int {
	if len(a)-len(b) >= limit || len(b)-len(a) >= limit {
		return limit
	}
	prevPrev, prev, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := range len(a) {
		row[0] = i + 1
		rowMin := row[0]
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			row[j+1] = min(prev[j]+cost, prev[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], prevPrev[j-1]+1)
			}
			rowMin = min(rowMin, row[j+1])
		}
		if rowMin > limit { // a swap may still reduce it by one
			return limit
		}
		prevPrev, prev, row = prev, row, prevPrev
	}
	return prev[len(b)]
}

// DidYouMean returns a hint with the Nearest candidate, or "".
func DidYouMean(name string, candidates []string) string {
	if near := Nearest(name, candidates); near != "" {
		return "did you mean " + near + "?"
	}
	return ""
}

// JoinWords writes "a, b or c", with conjunction "or". Equal neighbours are written once.
func JoinWords(words []string, conjunction string) string {
	words = slices.Compact(slices.Clone(words))
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " " + conjunction + " " + words[last]
}

// Truncate shortens part of a document for a message.
func Truncate(s string) string {
	const maxRunes = 40
	n := 0
	for i := range s {
		if n++; n > maxRunes {
			return s[:i] + "…"
		}
	}
	return s
}
