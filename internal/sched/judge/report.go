package judge

import (
	"maps"
	"slices"
	"strings"

	"github.com/muster-dev/muster"
)

// maxMetrics limits the metrics of one attempt; further names are ignored.
const maxMetrics = 100

// ClampTime limits a worker's time to the range of two server times; 0 means to.
func ClampTime(at, from, to muster.Time) muster.Time {
	if at == 0 {
		return to
	}
	return min(max(at, from), to)
}

// MergeMetrics returns a new map of old and update: rows and events share the old one.
func MergeMetrics(old, update map[string]float64) map[string]float64 {
	m := make(map[string]float64, len(old)+len(update))
	maps.Copy(m, old)
	spare := maxMetrics - len(m)
	for _, name := range slices.Sorted(maps.Keys(update)) {
		if _, known := m[name]; !known {
			if spare <= 0 {
				continue
			}
			spare--
		}
		m[name] = update[name]
	}
	return m
}

// ReasonOf returns the report's reason, or the default for its outcome.
func ReasonOf(r *muster.Report) muster.Reason {
	switch {
	case r.Outcome == muster.AttemptLost && !r.Reason.FleetFault():
		return muster.WorkerLost
	case r.Reason != muster.NoReason || r.Outcome == muster.AttemptSucceeded:
		return r.Reason
	case r.Outcome == muster.AttemptTimedOut:
		return muster.Timeout
	case r.Outcome == muster.AttemptCancelled:
		return muster.CancelledByUser
	default:
		return muster.ExitCode
	}
}

// TruncateMessage cuts a worker's message to 4 KiB.
func TruncateMessage(message string) string {
	const limit = 4096
	if len(message) <= limit {
		return message
	}
	return strings.ToValidUTF8(message[:limit], "") + "…"
}
