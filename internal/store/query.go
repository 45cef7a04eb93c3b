package store

import (
	"math"

	"github.com/muster-dev/muster"
)

// UpperBound checks the query and returns the number that all its jobs are below.
func (q *JobQuery) UpperBound() (muster.JobID, error) {
	n, err := q.LowerBound()
	if q.Cursor == "" {
		n = math.MaxInt64
	}
	return n, err
}

// LowerBound checks the query and returns the number that all its jobs are above, if the oldest come first.
func (q *JobQuery) LowerBound() (muster.JobID, error) {
	if err := checkLimit(q.Limit); err != nil {
		return 0, err
	}
	n, err := parseCursor(q.Cursor)
	return muster.JobID(n), err
}

// TrimPage makes the page and its cursor of jobs, which an adapter read with one more
// than Limit, to see whether there are any.
func (q *JobQuery) TrimPage(jobs []muster.Job) ([]muster.Job, string) {
	if len(jobs) <= q.Limit {
		return jobs, ""
	}
	jobs = jobs[:q.Limit]
	return jobs, jobs[len(jobs)-1].ID.String()
}
