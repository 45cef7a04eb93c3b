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

// Within trusts a worker's clock only between two times of our own.
func Within(at, from, to muster.Time) muster.Time {
	if at == 0 {
		return to
	}
	return min(max(at, from), to)
}

// Merged adds fresh metrics to those before. It returns a new map: the old one was given away in rows and events.
func Merged(old, fresh map[string]float64) map[string]float64 {
	m := make(map[string]float64, len(old)+len(fresh))
	maps.Copy(m, old)
	spare := maxMetrics - len(m)
	for _, name := range slices.Sorted(maps.Keys(fresh)) {
		if _, known := m[name]; !known {
			if spare <= 0 {
				continue
			}
			spare--
		}
		m[name] = fresh[name]
	}
	return m
}

// Reason fills in the reason that a report leaves out.
func Reason(r *muster.Report) muster.Reason {
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

// Clip cuts a worker's message to what a person would read.
func Clip(message string) string {
	const most = 4096
	if len(message) <= most {
		return message
	}
	return strings.ToValidUTF8(message[:most], "") + "…"
}
