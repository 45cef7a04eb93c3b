package fleet

import "github.com/muster-dev/muster"

// ProjectStats counts the tasks of a project and their transitions. Times must not go backwards between calls.
type ProjectStats struct {
	Counts muster.Counts

	total   Total
	buckets [nBuckets]bucket
}

const (
	perMinute = 12
	nBuckets  = perMinute + 1
	bucketLen = muster.Time(60_000 / perMinute) // ms
)

// bucket counts the transitions in one interval of bucketLen.
type bucket struct {
	n     int64 // its number since 1970
	total Total
}

// RecordTransition counts n tasks that changed from one state to another.
func (t *ProjectStats) RecordTransition(now muster.Time, from, to muster.TaskState, n int) {
	t.Counts[from] -= int64(n)
	t.Counts[to] += int64(n)
	if to != muster.Running && !to.Final() {
		return
	}
	b := &t.buckets[int64(now/bucketLen)%nBuckets]
	if at := int64(now / bucketLen); b.n != at {
		*b = bucket{n: at}
	}
	for _, c := range []*Total{&t.total, &b.total} {
		switch to {
		case muster.Running:
			c.Started += int64(n)
		case muster.Failed, muster.TimedOut:
			c.Failed += int64(n)
			c.Finished += int64(n)
		default:
			c.Finished += int64(n)
		}
	}
}

// Workload returns the counts, totals and rates. The rates are over the last minute; the bucket in which it began counts in part.
func (t *ProjectStats) Workload(now muster.Time) Workload {
	w := Workload{Counts: t.Counts, Total: t.total}
	newest := int64(now / bucketLen)
	for i := range t.buckets {
		b, share := &t.buckets[i], 1.0
		switch {
		case b.n <= newest-nBuckets || b.n > newest:
			continue
		case b.n == newest-perMinute:
			share = 1 - float64(now%bucketLen)/float64(bucketLen)
		}
		w.Rate.Started += share * float64(b.total.Started) / 60
		w.Rate.Finished += share * float64(b.total.Finished) / 60
		w.Rate.Failed += share * float64(b.total.Failed) / 60
	}
	return w
}

func (t *Total) add(o *Total) {
	t.Started += o.Started
	t.Finished += o.Finished
	t.Failed += o.Failed
}

// Add adds the counts, rates and totals of another project.
func (w *Workload) Add(o *Workload) {
	w.Counts = w.Counts.Add(o.Counts)
	w.Total.add(&o.Total)
	w.Rate.Started += o.Rate.Started
	w.Rate.Finished += o.Rate.Finished
	w.Rate.Failed += o.Rate.Failed
}
