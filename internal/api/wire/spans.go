package wire

import (
	"strconv"
	"strings"

	"github.com/muster-dev/muster"
)

// maxSpans is the maximum number of numbers and ranges.
const maxSpans = 1_000

// ParseSpans reads task numbers and ranges such as "0-9,12". For "", which means all
// tasks, it returns nil.
func ParseSpans(s string) ([]muster.Span, error) {
	if s == "" {
		return nil, nil
	}
	parts := strings.Split(s, ",")
	if len(parts) > maxSpans {
		return nil, muster.Errorf(muster.Invalid, "too many ranges of tasks: %d, the maximum is %d", len(parts), maxSpans)
	}
	spans := make([]muster.Span, len(parts))
	for i, part := range parts {
		first, last, isRange := strings.Cut(strings.TrimSpace(part), "-")
		if !isRange {
			last = first
		}
		a, errA := parseTaskNumber(first)
		b, errB := parseTaskNumber(last)
		if errA != nil || errB != nil || b < a {
			return nil, muster.Errorf(muster.Invalid, "%q is not a range of tasks: write numbers and ranges such as 0-9,12", part)
		}
		spans[i] = muster.Span{First: a, Last: b}
	}
	return spans, nil
}

func parseTaskNumber(s string) (int, error) {
	n, err := strconv.ParseUint(s, 10, 31)
	return int(n), err
}

// FormatSpans is the inverse of ParseSpans.
func FormatSpans(spans []muster.Span) string {
	parts := make([]string, len(spans))
	for i, s := range spans {
		parts[i] = strconv.Itoa(s.First)
		if s.Last != s.First {
			parts[i] += "-" + strconv.Itoa(s.Last)
		}
	}
	return strings.Join(parts, ",")
}
