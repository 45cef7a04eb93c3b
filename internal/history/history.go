// Package history keeps how the fleet and each worker were loaded in the last week: every 10 seconds for an hour, every minute for
// twelve hours, every ten minutes for seven days. A worker takes 25 KB, whatever it does.
//
//	engine ──picture──► Run, every 10 s ──► rings in memory ──► file, at most once a minute, and at the end
//	                                              │
//	                                          Query ──► API
//
// The file is replaced whole. A server that is killed loses what came after the last write: a minute with few workers, up to nine
// minutes with 2,000. A file that is damaged is not used, and the history begins again.
package history

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/wire"
	"github.com/muster-dev/muster/internal/sched/fleet"
)

// Source is where the figures come from.
type Source interface {
	Fleet(ctx context.Context) (*fleet.Picture, error)
}

// Config is what a History is made of.
type Config struct {
	Source Source
	File   string // where it is kept
	Log    *slog.Logger
}

// MaxWorkers is how many workers are remembered. Those that are gone for longest make room for others.
const MaxWorkers = 5_000

// History remembers. Its methods may be called at the same time as Run, which is called once.
type History struct {
	cfg Config

	mu      sync.RWMutex // Run's goroutine alone writes, and reads without it
	last    [tiers]int64 // the newest slot of each tier; 0 if there is none
	fleet   rings[float32]
	workers map[muster.WorkerID]*rings[uint16]
	slabs   slabs

	before fleet.Total // Run's goroutine
	seen   time.Time   // when before was taken
	behind time.Time   // since when the clock has been behind by more than clockSlip; zero if it is not
	saver  saver
}

// Open reads what was kept, or begins with nothing if there is nothing sound.
func Open(cfg Config) *History {
	h := &History{cfg: cfg}
	h.reset()
	h.load()
	return h
}

// reset forgets everything.
func (h *History) reset() {
	h.last = [tiers]int64{}
	h.fleet = newRings(len(fleetSeries), wide.none, make([]float32, allSlots*len(fleetSeries)))
	h.workers, h.slabs = map[muster.WorkerID]*rings[uint16]{}, slabs{}
}

// add begins the history of a worker.
func (h *History) add(id muster.WorkerID) *rings[uint16] {
	r := newRings(len(workerSeries), small.none, h.slabs.take())
	h.workers[id] = &r
	return &r
}

// remove forgets a worker.
func (h *History) remove(id muster.WorkerID) {
	h.slabs.free = append(h.slabs.free, h.workers[id].data)
	delete(h.workers, id)
}

const (
	every       = 10 * time.Second
	patience    = 5 * time.Second  // for the engine's answer
	clockSlip   = 360              // slots of the finest tier by which the clock may have gone back
	clockAgain  = 10 * time.Minute // by more than that until the history begins again
	secondsPast = 7 * 24 * 3600
)

// Run takes a sample every ten seconds until ctx ends, and then keeps what there is.
func (h *History) Run(ctx context.Context) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			h.save(time.Now())
			return nil
		case <-tick.C:
		}
		h.sample(ctx)
		if now := time.Now(); h.saver.due(now, h.size()) {
			h.save(now)
		}
	}
}

// sample asks for a picture and enters it. An engine that does not answer leaves a gap.
func (h *History) sample(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	p, err := h.cfg.Source.Fleet(ctx)
	if err != nil {
		h.before, h.seen = fleet.Total{}, time.Time{}
		return
	}
	h.enter(time.Now(), p)
}

// enter records a picture that was taken now.
func (h *History) enter(now time.Time, p *fleet.Picture) {
	slot := now.Unix() / resolutions[0].step
	since := 0.0
	if !h.seen.IsZero() {
		since = now.Sub(h.seen).Seconds()
	}
	figures := ofFleet(p, h.before, since)
	h.before, h.seen = p.All.Total, now
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.isBehind(now, h.last[0]-slot) {
		return
	}
	h.know(p)
	h.advance(now.Unix())
	wide.put(&h.fleet, slot, figures[:])
	for i := range p.Workers {
		w := &p.Workers[i]
		if r := h.workers[w.ID]; r != nil && w.Present() {
			f := ofWorker(w)
			small.put(r, slot, f[:])
		}
	}
	for t := 1; t < tiers; t++ {
		fine, coarse := &resolutions[t-1], &resolutions[t]
		wide.condense(&h.fleet, fine, coarse, h.last[t], h.last[t-1])
		for _, r := range h.workers {
			small.condense(r, fine, coarse, h.last[t], h.last[t-1])
		}
	}
}

// isBehind reports whether a picture is left out because the clock is behind the newest slot by so many. A clock that is far behind is usually set soon,
// such as by NTP after a boot. If it is not, it was far ahead before: what was recorded then is of no use and is forgotten.
func (h *History) isBehind(now time.Time, slots int64) bool {
	if slots <= clockSlip {
		h.behind = time.Time{}
		return slots > 0
	}
	if h.behind.IsZero() {
		h.behind = now
	}
	if now.Sub(h.behind) < clockAgain {
		return true
	}
	h.reset()
	h.behind = time.Time{}
	return false
}

// know makes room for new workers, and forgets those that were removed.
func (h *History) know(p *fleet.Picture) {
	there := make(map[muster.WorkerID]*fleet.Worker, len(p.Workers))
	var away []*fleet.Worker
	for i := range p.Workers {
		w := &p.Workers[i]
		there[w.ID] = w
		if !w.Present() && h.workers[w.ID] != nil {
			away = append(away, w)
		}
	}
	for id := range h.workers {
		if there[id] == nil {
			h.remove(id)
		}
	}
	slices.SortFunc(away, func(a, b *fleet.Worker) int { return cmp.Compare(a.SeenAt, b.SeenAt) })
	for i := range p.Workers {
		w := &p.Workers[i]
		if h.workers[w.ID] != nil || !w.Present() || len(w.ID) > maxIDSize {
			continue
		}
		if len(h.workers) >= MaxWorkers {
			if len(away) == 0 {
				return
			}
			h.remove(away[0].ID)
			away = away[1:]
		}
		h.add(w.ID)
	}
}

// advance goes to the slots of a time.
func (h *History) advance(unix int64) {
	for i := range resolutions {
		t := &resolutions[i]
		slot := unix / t.step
		wide.advance(&h.fleet, t, h.last[i], slot)
		for _, r := range h.workers {
			small.advance(r, t, h.last[i], slot)
		}
		h.last[i] = slot
	}
}

// Query selects a part of the history.
type Query struct {
	Worker   muster.WorkerID // "" means the fleet
	From, To muster.Time     // 0 means an hour before To, and now
	Points   int             // at most so many, and one more
}

// Query returns the means of at most so many steps, each of them a multiple of the finest resolution that is kept of From. A worker
// that is not known has only nulls.
func (h *History) Query(now muster.Time, q Query) wire.History {
	to := min(or(q.To, now), now).Std().Unix()
	from := or(q.From, muster.Time(to-3600)*1000).Std().Unix()
	from = max(min(from, to), now.Std().Unix()-secondsPast)
	to = max(from, to)
	h.mu.RLock()
	defer h.mu.RUnlock()
	k, step := h.resolution(from, to, int64(max(q.Points, 1)), now.Std().Unix())
	t := &resolutions[k]
	first := from / step * step
	n := int((to-first)/step) + 1
	answer := wire.History{
		Worker: q.Worker, From: muster.Time(first * 1000), To: muster.Time(to * 1000), Step: int(step), Times: make([]muster.Time, n), Series: map[string][]*float64{},
	}
	for i := range answer.Times {
		answer.Times[i] = muster.Time((first + int64(i)*step) * 1000)
	}
	if q.Worker == "" {
		for i, name := range fleetSeries {
			answer.Series[name] = wide.read(&h.fleet, t, i, first/t.step, step/t.step, n, h.last[k])
		}
		return answer
	}
	for i, name := range workerSeries {
		answer.Series[name] = make([]*float64, n)
		if r := h.workers[q.Worker]; r != nil {
			answer.Series[name] = small.read(r, t, i, first/t.step, step/t.step, n, h.last[k])
		}
	}
	return answer
}

// resolution chooses the tier for a span, and how many seconds a step has: the finest tier that reaches back to from, or a coarser one
// if its slots are no longer than the steps.
func (h *History) resolution(from, to, points, now int64) (k int, step int64) {
	wanted := max((to-from+points-1)/points, 1)
	for k < tiers-1 && (now/resolutions[k].step-resolutions[k].slots-1)*resolutions[k].step > from { // an hour may begin with a gap of two slots
		k++
	}
	for k < tiers-1 && resolutions[k+1].step <= wanted {
		k++
	}
	s := resolutions[k].step
	return k, (wanted + s - 1) / s * s
}

func or(t, usual muster.Time) muster.Time {
	if t == 0 {
		return usual
	}
	return t
}
