package muster

import "strings"

// Nearest returns the candidate that name was probably meant to be: the one the
// fewest typing errors away, if they are few for its length, else one that begins
// or ends with name, else "". Names over MaxName bytes are not compared.
func Nearest(name string, candidates []string) string {
	if len(name) > MaxName {
		return ""
	}
	best, least := "", len(name)/3+2
	for _, c := range candidates {
		if d := distance(strings.ToLower(name), strings.ToLower(c), least); d < least {
			best, least = c, d
		}
	}
	if best == "" && len(name) >= 3 {
		for _, c := range candidates {
			if lower := strings.ToLower(c); strings.HasPrefix(lower, strings.ToLower(name)) || strings.HasSuffix(lower, strings.ToLower(name)) {
				return c
			}
		}
	}
	return best
}

// distance counts the insertions, deletions, replacements and swaps of
// neighbours that make b of a. It may return any number from most up for those
// that are further apart.
func distance(a, b string, most int) int {
	if len(a)-len(b) >= most || len(b)-len(a) >= most {
		return most
	}
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row[0] = i + 1
		least := row[0]
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			row[j+1] = min(last[j]+cost, last[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
			least = min(least, row[j+1])
		}
		if least > most { // a swap may still take one off
			return most
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
