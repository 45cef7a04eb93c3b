package queue

// chain lists workers by their last change of one sort, newest first, so that who
// looks again sees only those that changed since.
type chain struct {
	latest *link
	n      uint64 // changes of any worker
	length int
}

// link is a worker's place in a chain. It is in none while at is 0.
type link struct {
	worker       *Worker
	at           uint64 // chain.n at its last change
	newer, older *link
}

// note brings a worker to the front.
func (c *chain) note(k *link, w *Worker) {
	if k.at == 0 {
		k.worker = w
		c.length++
	}
	c.n++
	k.at = c.n
	if c.latest == k {
		return
	}
	c.unlink(k)
	k.older = c.latest
	if c.latest != nil {
		c.latest.newer = k
	}
	c.latest = k
}

// drop takes a worker out.
func (c *chain) drop(k *link) {
	c.unlink(k)
	c.length--
	k.at = 0
}

func (c *chain) unlink(k *link) {
	if k.newer != nil {
		k.newer.older = k.older
	}
	if k.older != nil {
		k.older.newer = k.newer
	}
	if c.latest == k {
		c.latest = k.older
	}
	k.newer, k.older = nil, nil
}

// check holds that the chain has so many workers, in order.
func (c *chain) check(workers int) error {
	listed := 0
	for k := c.latest; k != nil; k = k.older {
		listed++
		if k.older != nil && (k.older.newer != k || k.older.at >= k.at) {
			return broken("a list of changes is out of order at worker %s", k.worker.Book.Worker.ID)
		}
	}
	if listed != workers || c.length != workers {
		return broken("%d workers are in a list of changes, %d are counted, %d are known", listed, c.length, workers)
	}
	return nil
}
