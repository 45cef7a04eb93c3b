package queue

import "github.com/muster-dev/muster"

// maxCounted is about how many items CountAhead examines.
const maxCounted = 10_000

// CountAhead counts the queued tasks ahead of a task of that priority, project, job and
// number: those of a higher priority, and the older ones of the same. sameProject counts
// those of the same project and priority only. Held ones are not ahead. In a long queue it does not examine all
// of them: then there are more, and exact is false.
func (q *Queue) CountAhead(priority int, p *Project, job muster.JobID, num int) (all, sameProject int, exact bool) {
	exact = true
	perBucket := maxCounted
	if n := len(q.buckets); n > 0 {
		perBucket = max(maxCounted/n, 16)
	}
	for key, l := range q.buckets {
		if key.priority < priority || key.priority == Held {
			continue
		}
		c := counter{job: job, num: num, countAll: key.priority > priority, budget: perBucket}
		c.count(l.items, 0)
		all += c.tasks
		if key.priority == priority && key.project == p {
			sameProject += c.tasks
		}
		exact = exact && c.budget >= 0
	}
	return all, sameProject, exact
}

// counter counts the tasks of one bucket that are older than a task.
type counter struct {
	job      muster.JobID
	num      int
	countAll bool
	budget   int // items that may still be examined
	tasks    int
}

// count adds the tasks of the item at index i of the heap and of those below it. Below an item that is not older there are no
// older ones.
func (c *counter) count(items []*Item, i int) {
	if i >= len(items) || c.budget < 0 {
		return
	}
	it := items[i]
	n := it.Owner.Size()
	if !c.countAll {
		switch {
		case it.Job > c.job, it.Job == c.job && it.Num >= c.num:
			return
		case it.Job == c.job:
			n = it.Owner.CountBelow(c.num)
		}
	}
	if c.budget--; c.budget < 0 {
		return
	}
	c.tasks += n
	c.count(items, 2*i+1)
	c.count(items, 2*i+2)
}

// Oldest returns the item of a project that is not held, or of all if p is nil, that has been queued for longest according to since, or nil. It
// examines the first items of each bucket only, in a long queue not of all buckets.
func (q *Queue) Oldest(p *Project, since func(*Item) muster.Time) (oldest *Item) {
	budget := 2 * maxCounted
	perBucket := max(maxCounted/max(len(q.buckets), 1), 1)
	var at muster.Time
	for key, l := range q.buckets {
		if p != nil && key.project != p || key.priority == Held {
			continue
		}
		// The first items are the oldest by job and number, and so usually by time.
		for _, it := range l.items[:min(perBucket, len(l.items))] {
			if budget--; budget < 0 {
				return oldest
			}
			if t := since(it); oldest == nil || t < at || t == at && it.Before(oldest) {
				oldest, at = it, t
			}
		}
	}
	return oldest
}
