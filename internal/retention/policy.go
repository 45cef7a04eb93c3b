package retention

import (
	"time"

	"github.com/muster-dev/muster"
)

// Policy is how long the data of a project's jobs is kept, from their end on. A nil field is the default.
type Policy struct {
	Jobs        *Limit `json:"jobs,omitempty"`         // with their tasks, attempts, logs, artifacts and late reports
	Logs        *Limit `json:"logs,omitempty"`         // of ended jobs
	Artifacts   *Limit `json:"artifacts,omitempty"`    // and checkpoints, of ended jobs
	LateReports *Limit `json:"late_reports,omitempty"` // from their arrival on
}

// ServerPolicy is how long data that belongs to no project is kept.
type ServerPolicy struct {
	Uploads Limit // uploaded files that no job refers to; an age of less than MinGrace counts as MinGrace
	Workers Limit // workers that left the fleet
	Audit   Limit // records of the audit log, without a limit of size
	Events  int   // events in memory, for clients that reconnect
}

// MinGrace is the least time that a blob without references is kept: a client that knows that the server has a file
// submits its job within this time.
const MinGrace = muster.Duration(time.Hour)

// DefaultPolicy returns the limits of projects unless the administrator chose others.
func DefaultPolicy() Policy {
	month := Limit{Age: muster.Duration(30 * 24 * time.Hour)}
	return Policy{Jobs: &month, Logs: &month, Artifacts: &month, LateReports: &month}
}

// DefaultServerPolicy returns the limits of the server unless the administrator chose others.
func DefaultServerPolicy() ServerPolicy {
	return ServerPolicy{Uploads: Limit{Age: muster.Duration(24 * time.Hour)}, Workers: Limit{Age: muster.Duration(30 * 24 * time.Hour)}, Audit: Limit{Age: muster.Duration(365 * 24 * time.Hour)}, Events: 10_000}
}

// UnlimitedPolicy returns the policy that keeps everything.
func UnlimitedPolicy() Policy {
	return Policy{Jobs: &Limit{}, Logs: &Limit{}, Artifacts: &Limit{}, LateReports: &Limit{}}
}

// Over returns p with the limits of defaults where p has none.
func (p Policy) Over(defaults Policy) Policy {
	or := func(l, fallback *Limit) *Limit {
		if l != nil {
			return l
		}
		return fallback
	}
	return Policy{
		Jobs: or(p.Jobs, defaults.Jobs), Logs: or(p.Logs, defaults.Logs), Artifacts: or(p.Artifacts, defaults.Artifacts),
		LateReports: or(p.LateReports, defaults.LateReports),
	}
}

// Share returns the share of time, between 0 and 1, that deletion may take of the database and the disk, if the oldest removal has waited for a time.
func Share(waiting muster.Duration) float64 {
	switch {
	case waiting > muster.Duration(6*time.Hour):
		return 0.3
	case waiting > muster.Duration(time.Hour):
		return 0.1
	default:
		return 0.005
	}
}
