package judge

import (
	"maps"
	"slices"
	"strings"

	"github.com/muster-dev/muster"
)

// maxMetrics is how many metrics of one attempt are kept; further names are
// passed over.
const maxMetrics = 100

// ClampTime trusts a worker's clock only between two times of our own.
func ClampTime(at, from, to muster.Time) muster.Time {
	if at == 0 {
		return to
	}
	return min(max(at, from), to)
}

// MergeMetrics adds fresh metrics to those before. It returns a new map: the old one was given away in rows and events.
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

// ReasonOf fills in the reason that a report leaves out.
func ReasonOf(r *muster.Report) muster.Reason {
	switch {
	case r.Outcome == muster.AttemptLost && !r.Reason.FleetFault():
		return muster.WorkerLost // it ran no more
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

// TruncateMessage cuts a worker's message to what a person would read.
func TruncateMessage(message string) string {
	const limit = 4096
	if len(message) <= limit {
		return message
	}
	return strings.ToValidUTF8(message[:limit], "") + "…"
}
