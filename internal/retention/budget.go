package retention

import "github.com/muster-dev/muster"

// Entry is something that may be deleted: a job, its logs or artifacts, a report, a blob or a worker.
type Entry struct {
	Ended muster.Time // when its age began
	Bytes muster.Size
	Kept  bool // never deleted
}

// Total counts entries that are not kept.
type Total struct {
	Number int64
	Bytes  muster.Size
}

// Budget decides which entries of one project and kind go. Its answers depend on its arguments only: the same entries in the same order
// get the same answers.
type Budget struct {
	limit Limit
	now   muster.Time
	left  Total // of entries that are not kept and were not removed
	done  bool
}

// NewBudget returns the Budget of a limit at a time. total counts all entries that are not kept.
func NewBudget(l Limit, now muster.Time, total Total) Budget {
	return Budget{limit: l, now: now, left: total}
}

// Remove reports whether an entry goes. Entries must be passed in the order of their ages, the oldest first, without gaps.
func (b *Budget) Remove(e Entry) bool {
	if e.Kept || b.done {
		return false
	}
	over := b.limit.Age > 0 && b.now.Sub(e.Ended) > b.limit.Age ||
		b.limit.Number > 0 && b.left.Number > b.limit.Number ||
		b.limit.Bytes > 0 && b.left.Bytes > b.limit.Bytes
	if !over {
		b.done = true
		return false
	}
	b.left.Number--
	b.left.Bytes -= e.Bytes
	return true
}

// Done reports that no younger entry goes.
func (b *Budget) Done() bool { return b.done || b.limit.Unlimited() }
