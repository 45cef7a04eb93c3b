package queue

import (
	"cmp"
	"slices"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/place"
)

// crowd is the index of a gang's shape, in place of fits: how many members each
// worker has room for, and all of them together, by the vendor of their GPUs.
type crowd struct {
	rooms map[*Worker]berth
	all   map[string]int
	open  map[string]int // of workers that are not kept free
}

type berth struct {
	place.Room
	kept bool
}

// note brings a worker's room up to date.
func (c *crowd) note(w *Worker, n *place.Need) {
	c.drop(w)
	b := berth{w.Book.Room(n, n.Gang), w.kept != nil}
	if b.Members == 0 {
		return
	}
	if c.rooms == nil {
		*c = crowd{map[*Worker]berth{}, map[string]int{}, map[string]int{}}
	}
	c.rooms[w] = b
	c.count(&b, 1)
}

func (c *crowd) drop(w *Worker) {
	if b, ok := c.rooms[w]; ok {
		delete(c.rooms, w)
		c.count(&b, -1)
	}
}

func (c *crowd) count(b *berth, sign int) {
	c.all[b.Vendor] += sign * b.Members
	if !b.kept {
		c.open[b.Vendor] += sign * b.Members
	}
}

// suspects reports whether others go before one of the workers.
func (c *crowd) suspects() bool {
	for w := range c.rooms {
		if w.Suspect {
			return true
		}
	}
	return false
}

// most returns the most of any vendor.
func most(total map[string]int) int {
	n := 0
	for _, k := range total {
		n = max(n, k)
	}
	return n
}

// refreshCrowd brings the index up to date and reports whether there is room for
// the whole gang on workers that are not kept free.
func (q *Queue) refreshCrowd(sh *Shape) bool {
	for k := q.loads.latest; k != nil && k.at > sh.seen; k = k.older {
		sh.crowd.note(k.worker, sh.Need)
	}
	sh.seen = q.loads.n
	return most(sh.crowd.open) >= sh.Need.Gang
}

// Gather chooses workers for the gang that the item stands for, and how many
// members each takes, or returns nil: some that are kept free only if there are
// not enough others. Without such workers, shy reports whether there would be enough with
// those that are avoided. avoid may be nil.
func (q *Queue) Gather(now muster.Time, it *Item, avoid func(*Worker) bool) (rooms []place.Room, shy bool) {
	sh := it.lane.key.shape
	c := &sh.crowd
	if q.refreshCrowd(sh) {
		if c.suspects() { // only if there are not enough others
			rooms, _ = c.gather(sh.Need.Gang, avoid, func(w *Worker, b *berth) bool { return !b.kept && !w.Suspect })
			if rooms != nil {
				return rooms, false
			}
		}
		rooms, shy = c.gather(sh.Need.Gang, avoid, func(_ *Worker, b *berth) bool { return !b.kept })
	}
	if rooms == nil && most(c.all) >= sh.Need.Gang {
		rooms, shy = c.gather(sh.Need.Gang, avoid, func(w *Worker, b *berth) bool { return !b.kept || q.may(now, it.lane, w) })
	}
	return rooms, shy
}

func (c *crowd) gather(n int, avoid func(*Worker) bool, may func(*Worker, *berth) bool) (rooms []place.Room, shy bool) {
	var avoided []place.Room
	for w, b := range c.rooms {
		switch {
		case !may(w, &b):
		case avoid != nil && avoid(w):
			avoided = append(avoided, b.Room)
		default:
			rooms = append(rooms, b.Room)
		}
	}
	if got := place.Gather(rooms, n); got != nil {
		return got, false
	}
	return nil, len(avoided) > 0 && place.Gather(append(rooms, avoided...), n) != nil
}

// mayGather reports whether the gangs of l have enough room, with what is kept free
// and they may have.
func (q *Queue) mayGather(now muster.Time, l *lane) bool {
	c, n := &l.key.shape.crowd, l.key.shape.Need.Gang
	if most(c.all) < n {
		return false
	}
	total := map[string]int{}
	for w, b := range c.rooms {
		if !b.kept || q.may(now, l, w) {
			if total[b.Vendor] += b.Members; total[b.Vendor] >= n {
				return true
			}
		}
	}
	return false
}

// chance is what a worker can do for a gang that waits.
type chance struct {
	worker *Worker
	room   place.Room // once it is empty
	in     muster.Duration
}

// choose takes, of those that will have room soonest, as many workers as the gang
// needs, all with GPUs of one vendor. It returns nil if they are too few. It sorts
// chances.
func choose(chances []chance, n int) (ws []*Worker, freeIn muster.Duration) {
	slices.SortFunc(chances, func(x, y chance) int {
		return cmp.Or(cmp.Compare(x.in, y.in), cmp.Compare(x.worker.Book.Worker.ID, y.worker.Book.Worker.ID))
	})
	total := map[string]int{}
	for i := range chances {
		c := &chances[i]
		v := c.room.Vendor
		if total[v] += c.room.Members; total[v] < n {
			continue
		}
		for _, c := range chances[:i+1] {
			if c.room.Vendor == v {
				ws = append(ws, c.worker)
			}
		}
		return ws, c.in
	}
	return nil, 0
}
