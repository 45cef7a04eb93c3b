package queue

import (
	"cmp"
	"slices"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/place"
)

// What bounds the work for reservations, and how many there are.
const (
	mostTrust    = muster.Duration(time.Hour) // in a guess when a worker will have room
	mostReserved = 64                         // at once, and no more than a quarter of the open workers
	mostLooks    = 4096                       // workers that one review asks when they will be free, or what they could run
	sample       = 256                        // workers that are asked for one reservation
)

// clock goes off when a lane has been blocked for too long, or its reservation
// has stood for too long.
type clock struct {
	lane *lane
	at   muster.Time
	seq  uint64 // that it was set
	pos  int
}

// Seat and Before make clock a heap.Node: what goes off first, first.
func (c *clock) Seat() *int { return &c.pos }

// Before orders by time, then by who was set first.
func (c *clock) Before(o *clock) bool {
	if c.at != o.at {
		return c.at < o.at
	}
	return c.seq < o.seq
}

// set sets a lane's clock.
func (q *Queue) set(l *lane, at muster.Time) {
	if l.clock.pos > 0 {
		q.clocks.Remove(&l.clock)
	}
	q.settings++
	l.clock.lane, l.clock.at, l.clock.seq = l, at, q.settings
	q.clocks.Push(&l.clock)
}

// Due returns when Pass will have something to do, and 0 for never.
func (q *Queue) Due() muster.Time {
	if len(q.clocks) == 0 {
		return 0
	}
	return q.clocks[0].at
}

// Pass notes whose patience has ended by now. The next Place draws the
// conclusions.
func (q *Queue) Pass(now muster.Time) {
	for len(q.clocks) > 0 && q.clocks[0].at <= now {
		l := q.clocks[0].lane
		q.clocks.Remove(&l.clock)
		q.stale = true
		if !l.starving {
			l.starving = true
			q.starving = append(q.starving, l)
		}
		if len(l.kept) > 0 {
			l.renew, l.since = true, now
		}
	}
}

// blocked starts a lane's clock, unless it runs already.
func (q *Queue) blocked(now muster.Time, l *lane) {
	if l.since == 0 {
		l.since = now
		q.set(l, now.Add(q.patience))
	}
}

// calm stops a lane's clock: its first task was placed, or it has none any more.
func (q *Queue) calm(l *lane) {
	if l.since == 0 {
		return
	}
	l.since, l.stand = 0, 0
	if l.clock.pos > 0 {
		q.clocks.Remove(&l.clock)
	}
	if l.starving {
		l.starving, l.renew = false, false
		q.starving = without(q.starving, l)
		q.stale = true
	}
	if len(l.kept) > 0 {
		q.release(l)
	}
}

// release ends a lane's reservation.
func (q *Queue) release(l *lane) {
	ws := l.kept
	l.kept = nil
	q.reserved -= len(ws)
	q.stale, q.released = true, true
	for _, w := range ws {
		w.kept = nil
		q.Changed(w)
	}
}

// reserve keeps workers free for the first task of l, until it is placed, one of
// them can no longer run it, or a lane of a higher priority needs one. After a while
// in vain it is the turn of others that starve, if there are more than can be served
// at once, or of better workers. The while doubles, so that in the end whatever ends
// is awaited.
func (q *Queue) reserve(now muster.Time, l *lane, ws []*Worker, freeIn muster.Duration) {
	l.renew = false
	l.freeAt = now.Add(freeIn)
	l.stand = max(2*l.stand, q.patience, min(2*freeIn, mostTrust))
	q.set(l, now.Add(l.stand))
	if slices.Equal(l.kept, ws) {
		return
	}
	if len(l.kept) > 0 {
		q.release(l)
	}
	for _, w := range ws {
		if w.kept != nil {
			q.release(w.kept)
		}
		w.kept = l
		q.Changed(w)
	}
	l.kept, l.keptAt = ws, now
	q.reserved += len(ws)
}

// review makes the reservations what they should be: for the lanes that have
// starved for longest, those of the highest priority first. The first one gets all
// that it needs, be it a gang that needs the whole fleet.
func (q *Queue) review(now muster.Time) {
	q.Pass(now)
	if !q.stale {
		return
	}
	q.stale = false
	slices.SortFunc(q.starving, func(a, b *lane) int {
		return cmp.Or(cmp.Compare(b.key.priority, a.key.priority), cmp.Compare(a.since, b.since), a.items[0].compare(b.items[0]))
	})
	limit, n, looks := q.mostReserved(), 0, 0
	for _, l := range q.starving {
		switch {
		case n > 0 && n+max(len(l.kept), 1) > limit:
			if len(l.kept) > 0 {
				q.release(l)
			}
		case len(l.kept) > 0 && !l.renew:
		case looks >= mostLooks:
			q.stale = true // go on in the next Place
		default:
			ws, freeIn, cost := q.pick(now, l, n == 0)
			looks += cost
			if len(ws) > 0 && (n == 0 || n+len(ws) <= limit) {
				q.reserve(now, l, ws, freeIn)
			}
		}
		n += len(l.kept)
	}
}

func (q *Queue) mostReserved() int { return min(max(q.open/4, 1), mostReserved) }

// pick chooses the worker, or for a gang the workers, that will likely have room for
// l's first task soonest, of those that are not kept free for one of at least its
// priority. The first that starves is given those of its own priority, too, if the
// others are too few. In a large fleet it asks a sample, another one each time.
func (q *Queue) pick(now muster.Time, l *lane, first bool) (ws []*Worker, freeIn muster.Duration, looks int) {
	sh := l.key.shape
	looks = q.hope(sh)
	n := max(sh.Need.Gang, 1)
	for _, equals := range []bool{false, true} {
		free := make([]*Worker, 0, len(sh.hopes))
		for _, h := range sh.hopes {
			k := h.worker.kept
			if k == nil || k == l || k.key.priority < l.key.priority || equals && k.key.priority == l.key.priority {
				free = append(free, h.worker)
			}
		}
		chances := make([]chance, 0, min(len(free), max(sample, 2*n))+len(l.kept))
		for _, w := range l.kept {
			chances = append(chances, l.chance(now, w, n, l.keptAt))
		}
		stride := max((len(free)+max(sample, 2*n)-1)/max(sample, 2*n), 1)
		for i := sh.turn % stride; i < len(free); i += stride {
			looks++
			if w := free[i]; w.kept != l {
				chances = append(chances, l.chance(now, w, n, 0))
			}
		}
		if ws, freeIn = choose(chances, n); ws != nil || !first {
			break
		}
	}
	sh.turn++
	return ws, freeIn, looks
}

// chance asks what a worker can do for l's first task, which takes n places.
func (l *lane) chance(now muster.Time, w *Worker, n int, since muster.Time) chance {
	c := chance{worker: w, room: place.Room{Members: 1}}
	if n > 1 {
		c.room = w.Book.EmptyRoom(l.key.shape.Need, n)
	}
	c.in = w.Owner.FreeIn(now, l.key.shape.Need, c.room.Members, since)
	return c
}

// hope brings the list of workers that could run what sh needs if they were empty
// up to date, and returns how many it looked at.
func (q *Queue) hope(sh *Shape) int {
	kept := sh.hopes[:0]
	for _, h := range sh.hopes {
		if h.version == h.worker.terms.at {
			kept = append(kept, h)
		}
	}
	clear(sh.hopes[len(kept):])
	sh.hopes = kept
	looks := 0
	for k := q.terms.latest; k != nil && k.at > sh.asked; k = k.older {
		looks++
		if k.worker.could(sh) {
			sh.hopes = append(sh.hopes, hope{k.worker, k.at})
		}
	}
	sh.asked = q.terms.n
	return looks
}

// hope says that a worker could run something if it were empty, by its terms of
// that version.
type hope struct {
	worker  *Worker
	version uint64
}

// may reports whether tasks of l may have w, which is kept free.
func (q *Queue) may(now muster.Time, l *lane, w *Worker) bool {
	return w.kept == l || l.key.priority > w.kept.key.priority || q.fills(now, l.key.shape, w.kept)
}

// fills reports whether a task of sh, which may be nil, will likely have ended on
// the worker that is kept free for l before that could have room for l's first
// task anyway. What came since the reservation never counts for that, so it is not
// put off without end.
func (q *Queue) fills(now muster.Time, sh *Shape, l *lane) bool {
	each := q.patience
	if sh != nil && sh.Ran > 0 {
		each = sh.Runtime / muster.Duration(sh.Ran)
	}
	return now.Add(2*each) <= l.freeAt
}

// KeptFor returns the queued item for which w is kept free, or nil, and whether
// another task of that need, whose Shape may be unknown, and priority is barred
// from w.
func (q *Queue) KeptFor(now muster.Time, w *Worker, sh *Shape, priority int) (it *Item, barred bool) {
	l := w.kept
	if l == nil {
		return nil, false
	}
	return l.items[0], priority <= l.key.priority && !q.fills(now, sh, l)
}
