package queue

import "github.com/muster-dev/muster"

// Oldest returns the item of a project, or of all if p is nil, that has been queued for longest according to since, or nil. It
// examines the first items of each bucket only, in a long queue not of all buckets.
func (q *Queue) Oldest(p *Project, since func(*Item) muster.Time) *Item {
	o := oldestSearch{since: since, budget: 2 * maxCounted}
	perBucket := max(maxCounted/max(len(q.buckets), 1), 1)
	for key, l := range q.buckets {
		if p != nil && key.project != p {
			continue
		}
		o.scan(l.items[:min(perBucket, len(l.items))])
		if o.budget <= 0 {
			break
		}
	}
	return o.item
}

// oldestSearch is the search of Oldest.
type oldestSearch struct {
	since  func(*Item) muster.Time
	budget int // items that may still be examined
	item   *Item
	at     muster.Time
}

// scan examines the first items of a bucket's heap, which are the oldest by job and number and so usually by time.
func (o *oldestSearch) scan(items []*Item) {
	for _, it := range items {
		if o.budget--; o.budget < 0 {
			return
		}
		at := o.since(it)
		if o.item == nil || at < o.at || at == o.at && it.Before(o.item) {
			o.item, o.at = it, at
		}
	}
}
