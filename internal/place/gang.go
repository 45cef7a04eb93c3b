package place

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/muster-dev/muster"
)

// Room is how many members of a gang one worker has room for, or takes. With
// GPUs all of its members get devices of one vendor.
type Room struct {
	Book    *Book
	Members int
	Vendor  string // "" without GPUs
	Models  string // names of the devices that would do, in order; "" without GPUs
}

// Room tells how many tasks with need n the worker could take now, at most so
// many. It changes nothing.
func (b *Book) Room(n *Need, most int) Room {
	if b.Fits(n) != Fits {
		return Room{Book: b}
	}
	return b.count(n, most)
}

// EmptyRoom is Room as if the worker were open and empty.
func (b *Book) EmptyRoom(n *Need, most int) Room {
	if b.Ever(n) != Fits {
		return Room{Book: b}
	}
	empty := NewBook(b.Worker)
	r := empty.count(n, most)
	r.Book = b
	return r
}

// count counts on a worker that fits n once at least.
func (b *Book) count(n *Need, most int) Room {
	r := Room{Book: b, Members: most}
	fit := func(free, each int64) {
		if each > 0 {
			r.Members = int(min(int64(r.Members), max(free, 0)/each))
		}
	}
	if most := b.Worker.Resources.MaxTasks; most > 0 {
		fit(int64(most-b.tasks), 1)
	}
	if n.mcpu > 0 {
		fit(b.mcpu, n.mcpu)
	} else {
		fit(int64(b.slots), 1)
	}
	fit(int64(b.memory), int64(n.Request.Memory))
	fit(int64(b.disk), int64(n.Request.Disk))
	if n.Request.GPUs.Count == 0 {
		return r
	}
	best := Room{Book: b}
	for _, vendor := range b.vendors(n) {
		v := n.Of(vendor)
		got := Room{Book: b, Vendor: vendor, Models: b.models(v)}
		c := Book{Worker: b.Worker, mcpu: math.MaxInt64, memory: math.MaxInt64, disk: math.MaxInt64, slots: math.MaxInt, gpus: slices.Clone(b.gpus)}
		for got.Members < r.Members && c.devices(v, false) {
			g := c.Grant(v)
			c.enter(&muster.Grant{GPUs: g.GPUs, GPUMemory: g.GPUMemory}, 1)
			got.Members++
		}
		if got.Members > best.Members {
			best = got
		}
	}
	return best
}

// vendors lists those of whom the worker has devices that would do, sorted.
func (b *Book) vendors(n *Need) []string {
	var list []string
	for i := range b.gpus {
		if d := &b.gpus[i]; d.would(n) && !slices.Contains(list, d.gpu.Vendor) {
			list = append(list, d.gpu.Vendor)
		}
	}
	slices.Sort(list)
	return list
}

// models names the devices that would do.
func (b *Book) models(n *Need) string {
	var list []string
	for i := range b.gpus {
		if d := &b.gpus[i]; d.would(n) && !slices.Contains(list, d.gpu.Name) {
			list = append(list, d.gpu.Name)
		}
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}

// would reports whether the device could be given to n if it were free.
func (d *device) would(n *Need) bool {
	_, ok := d.usable(n, true)
	return ok
}

// Of returns n with a vendor of GPUs, to be asked on one worker.
func (n *Need) Of(vendor string) *Need {
	if n.Request.GPUs.Count == 0 || n.Request.GPUs.Vendor == vendor {
		return n
	}
	c := *n
	c.Request.GPUs.Vendor = vendor
	return &c
}

// Gather chooses workers for a gang of n members from those with room: as few as
// can be, and of those the ones with the least room to spare. GPUs are of one
// vendor, and of one model if that is possible. It returns how many each takes,
// the fullest first, or nil if there is not enough room. It sorts rooms.
func Gather(rooms []Room, n int) []Room {
	if best := gather(rooms, n, func(r *Room) string { return r.Vendor + "\x00" + r.Models }); best != nil {
		return best
	}
	return gather(rooms, n, func(r *Room) string { return r.Vendor })
}

// gather is Gather from workers that are alike by their key.
func gather(rooms []Room, n int, key func(*Room) string) []Room {
	slices.SortFunc(rooms, func(x, y Room) int {
		return cmp.Or(strings.Compare(key(&x), key(&y)), cmp.Compare(y.Members, x.Members), cmp.Compare(x.Book.Worker.ID, y.Book.Worker.ID))
	})
	var best []Room
	for len(rooms) > 0 {
		k := 1
		for k < len(rooms) && key(&rooms[k]) == key(&rooms[0]) {
			k++
		}
		if got := pack(rooms[:k], n); got != nil && (best == nil || len(got) < len(best)) {
			best = got
		}
		rooms = rooms[k:]
	}
	return best
}

// pack takes the roomiest workers until one can take the rest, and for that the
// tightest that can. rooms are sorted, the roomiest first.
func pack(rooms []Room, n int) []Room {
	var taken []Room
	for i := range rooms {
		if rooms[i].Members >= n {
			last := i
			for last+1 < len(rooms) && rooms[last+1].Members >= n {
				last++
			}
			for last > i && rooms[last-1].Members == rooms[last].Members { // equals by id
				last--
			}
			r := rooms[last]
			r.Members = n
			return append(taken, r)
		}
		if rooms[i].Members == 0 {
			return nil
		}
		taken = append(taken, rooms[i])
		n -= rooms[i].Members
	}
	return nil
}

// room adds up how many members of the gang the workers together take now, and
// how many if all of them were open and empty.
func room(answers []Answer) (now, ever int) {
	n := answers[0].Need
	free, empty := map[string]int{}, map[string]int{}
	for i := range answers {
		a := &answers[i]
		if a.fits() {
			r := a.Book.Room(n, n.Gang)
			free[r.Vendor] += r.Members
			now = max(now, free[r.Vendor])
		}
		r := a.Book.EmptyRoom(n, n.Gang)
		empty[r.Vendor] += r.Members
		ever = max(ever, empty[r.Vendor])
	}
	return now, ever
}

func summarizeGang(answers []Answer) string {
	n := answers[0].Need.Gang
	now, ever := room(answers)
	switch {
	case now >= n:
		return fmt.Sprintf("can start now: there is room for all %d tasks of the gang", n)
	case ever >= n:
		return fmt.Sprintf("waits for room: the gang needs it for %d tasks at once, and there is room for %d now", n, now)
	case engines(answers) > 0:
		return fmt.Sprintf("waits for container engines: the gang needs room for %d tasks at once, and the workers with one that is ready have room for %d", n, ever)
	default:
		return fmt.Sprintf("%s: the gang needs room for %d tasks at once, and all of them together have room for %d", Never, n, ever)
	}
}

func nearestGang(answers []Answer) string {
	n := answers[0].Need.Gang
	switch now, ever := room(answers); {
	case now >= n:
		return ""
	case ever >= n:
		return fmt.Sprintf("wait for room for %d more", n-now)
	case engines(answers) > 0:
		i := slices.IndexFunc(answers, func(a Answer) bool { return a.Ever == Engine && a.mendable() })
		return answers[i].wait()
	case ever == 0:
		return "see what each worker lacks, or start workers that fit"
	default:
		return fmt.Sprintf("start workers with room for %d more, or make the gang no larger than %d", n-ever, ever)
	}
}
