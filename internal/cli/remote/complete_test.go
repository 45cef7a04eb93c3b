package remote

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestNumbersWith(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 3000).Draw(t, "n")
		prefix := rapid.StringMatching(`[0-9]{0,4}|\+1|1x|99999999999999999999`).Draw(t, "prefix")
		var want, got []int
		for i := range n {
			if strings.HasPrefix(strconv.Itoa(i), prefix) {
				want = append(want, i)
			}
		}
		spans, ok := numbersWith(prefix, int64(n))
		for i := range n {
			inside := spans == nil
			for _, s := range spans {
				inside = inside || s.First <= i && i <= s.Last
			}
			if ok && inside {
				got = append(got, i)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("numbers below %d that begin with %q are %v, want %v", n, prefix, got, want)
		}
	})
}
