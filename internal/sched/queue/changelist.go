package queue

// changeList lists workers by their last change, newest first, so that a reader sees
// only those that changed since it last read.
type changeList struct {
	latest *changeNode
	seq    uint64 // changes of any worker
	length int
}

// changeNode is a worker's node in a changeList. It is in none while seq is 0.
type changeNode struct {
	worker       *Worker
	seq          uint64 // changeList.seq at its last change
	newer, older *changeNode
}

// moveToFront records a change of a worker.
func (c *changeList) moveToFront(k *changeNode, w *Worker) {
	if k.seq == 0 {
		k.worker = w
		c.length++
	}
	c.seq++
	k.seq = c.seq
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

// remove removes a worker.
func (c *changeList) remove(k *changeNode) {
	c.unlink(k)
	c.length--
	k.seq = 0
}

func (c *changeList) unlink(k *changeNode) {
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

// check checks that the list has so many workers, in order.
func (c *changeList) check(workers int) error {
	listed := 0
	for k := c.latest; k != nil; k = k.older {
		listed++
		if k.older != nil && (k.older.newer != k || k.older.seq >= k.seq) {
			return broken("a list of changes is out of order at worker %s", k.worker.Usage.Worker.ID)
		}
	}
	if listed != workers || c.length != workers {
		return broken("%d workers are in a list of changes, %d are counted, %d are known", listed, c.length, workers)
	}
	return nil
}
