package queue

import "github.com/muster-dev/muster"

// mostCounted is how many items Ahead looks at, about.
const mostCounted = 10_000

// Ahead counts the queued tasks that go before a task of that priority, project,
// job and number: those of a higher priority, and the older ones of the same. own
// counts those of the same project and priority only. In a long queue it does not
// look at all of them: then there are more, and exact is false.
func (q *Queue) Ahead(priority int, p *Project, job muster.JobID, num int) (all, own int, exact bool) {
	exact = true
	most := mostCounted
	if n := len(q.lanes); n > 0 {
		most = max(mostCounted/n, 16)
	}
	for key, l := range q.lanes {
		if key.priority < priority {
			continue
		}
		c := counter{job: job, num: num, every: key.priority > priority, left: most}
		c.count(l.items, 0)
		all += c.tasks
		if key.priority == priority && key.project == p {
			own += c.tasks
		}
		exact = exact && c.left >= 0
	}
	return all, own, exact
}

// counter counts tasks of one lane that are older than a task.
type counter struct {
	job   muster.JobID
	num   int
	every bool // count all
	left  int  // items that may still be looked at
	tasks int
}

// count counts the items from place i of the heap downwards. Below one that is not
// older none is.
func (c *counter) count(items []*Item, i int) {
	if i >= len(items) || c.left < 0 {
		return
	}
	it := items[i]
	n := it.Owner.Size()
	if !c.every {
		switch {
		case it.Job > c.job, it.Job == c.job && it.Num >= c.num:
			return
		case it.Job == c.job:
			n = it.Owner.Below(c.num)
		}
	}
	if c.left--; c.left < 0 {
		return
	}
	c.tasks += n
	c.count(items, 2*i+1)
	c.count(items, 2*i+2)
}
