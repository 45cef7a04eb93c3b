package queue

import (
	"cmp"
	"slices"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/placement"
)

// Limits of the number of reservations and of the work for them.
const (
	maxEstimate  = muster.Duration(time.Hour) // of the time until a worker has room
	maxReserved  = 64                         // workers at once, and no more than a quarter of the open ones
	maxInspected = 4096                       // workers that one review examines
	sampleSize   = 256                        // workers that are examined for one reservation
)

// starvationTimer is due when a bucket has been blocked for the starvation timeout, or its
// reservation has lasted for holdFor.
type starvationTimer struct {
	bucket *bucket
	at     muster.Time
	seq    uint64 // order of setting
	pos    int
}

// HeapIndex makes starvationTimer a Node.
func (c *starvationTimer) HeapIndex() *int { return &c.pos }

// Before orders by time, then by order of setting.
func (c *starvationTimer) Before(o *starvationTimer) bool {
	return cmp.Or(cmp.Compare(c.at, o.at), cmp.Compare(c.seq, o.seq)) < 0
}

// setTimer sets a bucket's timer.
func (q *Queue) setTimer(l *bucket, at muster.Time) {
	if l.timer.pos > 0 {
		q.timers.Remove(&l.timer)
	}
	q.timerSeq++
	l.timer.bucket, l.timer.at, l.timer.seq = l, at, q.timerSeq
	q.timers.Push(&l.timer)
}

// NextTimeout returns when Expire will have something to do, or 0 for never.
func (q *Queue) NextTimeout() muster.Time {
	if len(q.timers) == 0 {
		return 0
	}
	return q.timers[0].at
}

// Expire marks the buckets whose timers are due as starving. The next Place reserves
// workers for them.
func (q *Queue) Expire(now muster.Time) {
	for len(q.timers) > 0 && q.timers[0].at <= now {
		l := q.timers[0].bucket
		q.timers.Remove(&l.timer)
		q.reviewNeeded = true
		if !l.starving {
			l.starving = true
			q.starving = append(q.starving, l)
		}
		if len(l.reserved) > 0 {
			l.reconsider, l.blockedSince = true, now
		}
	}
}

// markBlocked starts a bucket's timer, unless it runs already.
func (q *Queue) markBlocked(now muster.Time, l *bucket) {
	if l.blockedSince == 0 {
		l.blockedSince = now
		q.setTimer(l, now.Add(q.starvationTimeout))
	}
}

// clearStarvation stops a bucket's timer and ends its reservation: its first task was placed, or it is empty.
func (q *Queue) clearStarvation(l *bucket) {
	if l.blockedSince == 0 {
		return
	}
	l.blockedSince, l.holdFor = 0, 0
	if l.timer.pos > 0 {
		q.timers.Remove(&l.timer)
	}
	if l.starving {
		l.starving, l.reconsider = false, false
		q.starving = removeFrom(q.starving, l)
		q.reviewNeeded = true
	}
	if len(l.reserved) > 0 {
		q.releaseReservation(l)
	}
}

// releaseReservation ends a bucket's reservation.
func (q *Queue) releaseReservation(l *bucket) {
	ws := l.reserved
	l.reserved = nil
	q.reserved -= len(ws)
	q.reviewNeeded, q.released = true, true
	for _, w := range ws {
		w.reservedFor = nil
		q.LoadChanged(w)
	}
}

// reserve reserves workers for the first task of l, until it is placed, one of them can
// no longer run it, or a bucket of a higher priority needs one. After holdFor, other
// starving buckets may be served instead, or better workers may be chosen. holdFor
// doubles each time, so that eventually it exceeds the run time of any task.
func (q *Queue) reserve(now muster.Time, l *bucket, ws []*Worker, freeIn muster.Duration) {
	l.reconsider = false
	l.freeAt = now.Add(freeIn)
	l.holdFor = max(2*l.holdFor, q.starvationTimeout, min(2*freeIn, maxEstimate))
	q.setTimer(l, now.Add(l.holdFor))
	if slices.Equal(l.reserved, ws) {
		return
	}
	if len(l.reserved) > 0 {
		q.releaseReservation(l)
	}
	for _, w := range ws {
		if w.reservedFor != nil {
			q.releaseReservation(w.reservedFor)
		}
		w.reservedFor = l
		q.LoadChanged(w)
	}
	l.reserved, l.reservedAt = ws, now
	q.reserved += len(ws)
}

// reviewReservations updates the reservations: the buckets of the highest priority, and
// of these the ones that are blocked for longest, are served first. The first one gets
// all workers that it needs, even if that is the whole fleet.
func (q *Queue) reviewReservations(now muster.Time) {
	q.Expire(now)
	if !q.reviewNeeded {
		return
	}
	q.reviewNeeded = false
	slices.SortFunc(q.starving, func(a, b *bucket) int {
		return cmp.Or(cmp.Compare(b.key.priority, a.key.priority), cmp.Compare(a.blockedSince, b.blockedSince), a.items[0].compare(b.items[0]))
	})
	limit, n, inspected := q.maxReserved(), 0, 0
	for _, l := range q.starving {
		switch {
		case n > 0 && n+max(len(l.reserved), 1) > limit:
			if len(l.reserved) > 0 {
				q.releaseReservation(l)
			}
		case len(l.reserved) > 0 && !l.reconsider:
		case inspected >= maxInspected:
			q.reviewNeeded = true // continue in the next Place
		default:
			ws, freeIn, cost := q.pickWorkers(now, l, n == 0)
			inspected += cost
			if len(ws) > 0 && (n == 0 || n+len(ws) <= limit) {
				q.reserve(now, l, ws, freeIn)
			}
		}
		n += len(l.reserved)
	}
}

func (q *Queue) maxReserved() int { return min(max(q.openWorkers/4, 1), maxReserved) }

// pickWorkers chooses the worker, or for a gang the workers, that will likely have room for
// l's first task soonest. It excludes workers that are reserved for buckets of at least
// l's priority; the first bucket may take those of its own priority if the others are too
// few. In a large fleet it examines a sample, another one each time.
func (q *Queue) pickWorkers(now muster.Time, l *bucket, first bool) (ws []*Worker, freeIn muster.Duration, inspected int) {
	sh := l.key.shape
	inspected = q.refreshFeasible(sh)
	n := max(sh.Need.Gang, 1)
	for _, samePriority := range []bool{false, true} {
		free := make([]*Worker, 0, len(sh.feasible))
		for _, h := range sh.feasible {
			k := h.worker.reservedFor
			if k == nil || k == l || k.key.priority < l.key.priority || samePriority && k.key.priority == l.key.priority {
				free = append(free, h.worker)
			}
		}
		candidates := make([]candidate, 0, min(len(free), max(sampleSize, 2*n))+len(l.reserved))
		for _, w := range l.reserved {
			candidates = append(candidates, l.candidate(now, w, n, l.reservedAt))
		}
		stride := max((len(free)+max(sampleSize, 2*n)-1)/max(sampleSize, 2*n), 1)
		for i := sh.sampleOffset % stride; i < len(free); i += stride {
			inspected++
			if w := free[i]; w.reservedFor != l {
				candidates = append(candidates, l.candidate(now, w, n, 0))
			}
		}
		if ws, freeIn = selectWorkers(candidates, n); ws != nil || !first {
			break
		}
	}
	sh.sampleOffset++
	return ws, freeIn, inspected
}

// candidate returns w as a candidate for l's first task, which has n members.
func (l *bucket) candidate(now muster.Time, w *Worker, n int, since muster.Time) candidate {
	c := candidate{worker: w, fit: placement.GangFit{Members: 1}}
	if n > 1 {
		c.fit = w.Usage.GangFitEmpty(l.key.shape.Need, n)
	}
	c.freeIn = w.Owner.FreeIn(now, l.key.shape.Need, c.fit.Members, since)
	return c
}

// refreshFeasible updates the list of workers that could run sh if they were empty, and
// returns how many it examined.
func (q *Queue) refreshFeasible(sh *Shape) int {
	sh.feasible = slices.DeleteFunc(sh.feasible, func(h feasibleWorker) bool { return h.version != h.worker.specNode.seq })
	inspected := 0
	for k := q.specChanges.latest; k != nil && k.seq > sh.feasibleSeen; k = k.older {
		inspected++
		if k.worker.feasible(sh) {
			sh.feasible = append(sh.feasible, feasibleWorker{k.worker, k.seq})
		}
	}
	sh.feasibleSeen = q.specChanges.seq
	return inspected
}

// feasibleWorker is a worker that could run a shape if it were empty, as of a version of
// its description.
type feasibleWorker struct {
	worker  *Worker
	version uint64
}

// mayUse reports whether tasks of l may use w, which is reserved.
func (q *Queue) mayUse(now muster.Time, l *bucket, w *Worker) bool {
	return w.reservedFor == l || l.key.priority > w.reservedFor.key.priority || q.backfills(now, l.key.shape, w.reservedFor)
}

// backfills reports whether a task of sh, which may be nil, will likely end on the worker
// that is reserved for l before that has room for l's first task. freeAt ignores tasks
// assigned since the reservation, so that backfilling cannot delay l forever.
func (q *Queue) backfills(now muster.Time, sh *Shape, l *bucket) bool {
	each := q.starvationTimeout
	if sh != nil && sh.Ran > 0 {
		each = sh.Runtime / muster.Duration(sh.Ran)
	}
	return now.Add(2*each) <= l.freeAt
}

// ReservedFor returns the queued item that w is reserved for, or nil, and whether a task
// of another bucket with that priority and shape, which may be nil, is blocked from w.
func (q *Queue) ReservedFor(now muster.Time, w *Worker, sh *Shape, priority int) (it *Item, blocked bool) {
	l := w.reservedFor
	if l == nil {
		return nil, false
	}
	return l.items[0], priority <= l.key.priority && !q.backfills(now, sh, l)
}
