package store

import (
	"math"

	"github.com/muster-dev/muster"
)

// UpperBound checks the query and returns the number below which all its jobs are.
func (q *JobQuery) UpperBound() (muster.JobID, error) {
	n, err := q.LowerBound()
	if q.Cursor == "" {
		n = math.MaxInt64
	}
	return n, err
}

// LowerBound checks the query and returns the number above which all its jobs are, with OldestFirst.
func (q *JobQuery) LowerBound() (muster.JobID, error) {
	if err := checkLimit(q.Limit); err != nil {
		return 0, err
	}
	n, err := parseCursor(q.Cursor)
	return muster.JobID(n), err
}

// TrimPage returns the page and its cursor. An adapter reads one job more than Limit,
// to know whether there is a next page.
func (q *JobQuery) TrimPage(jobs []muster.Job) ([]muster.Job, string) {
	if len(jobs) <= q.Limit {
		return jobs, ""
	}
	jobs = jobs[:q.Limit]
	return jobs, jobs[len(jobs)-1].ID.String()
}
