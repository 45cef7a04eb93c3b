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
	"github.com/muster-dev/muster/internal/sched"
)

// Source is where the figures come from.
type Source interface {
	Fleet(ctx context.Context) (*sched.FleetSnapshot, error)
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
	newest  [tiers]int64 // the newest slot of each tier; 0 if there is none
	fleet   rings[float32]
	workers map[muster.WorkerID]*rings[uint16]
	slabs   slabAllocator

	prevTotal   sched.Total // Run's goroutine
	prevAt      time.Time   // when before was taken
	behindSince time.Time   // since when the clock has been behind by more than maxClockSlip; zero if it is not
	schedule    saveSchedule
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
	h.newest = [tiers]int64{}
	h.fleet = newRings(len(fleetSeries), float32Codec.none, make([]float32, allSlots*len(fleetSeries)))
	h.workers, h.slabs = map[muster.WorkerID]*rings[uint16]{}, slabAllocator{}
}

// addWorker begins the history of a worker.
func (h *History) addWorker(id muster.WorkerID) *rings[uint16] {
	r := newRings(len(workerSeries), float16Codec.none, h.slabs.alloc())
	h.workers[id] = &r
	return &r
}

// removeWorker forgets a worker.
func (h *History) removeWorker(id muster.WorkerID) {
	h.slabs.free = append(h.slabs.free, h.workers[id].data)
	delete(h.workers, id)
}

const (
	sampleInterval   = 10 * time.Second
	fleetTimeout     = 5 * time.Second  // for the engine's answer
	maxClockSlip     = 360              // slots of the finest tier by which the clock may have gone back
	clockResetAfter  = 10 * time.Minute // by more than that until the history begins again
	retentionSeconds = 7 * 24 * 3600
)

// Run takes a sample every ten seconds until ctx ends, and then keeps what there is.
func (h *History) Run(ctx context.Context) error {
	tick := time.NewTicker(sampleInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			h.save(time.Now())
			return nil
		case <-tick.C:
		}
		h.sample(ctx)
		if now := time.Now(); h.schedule.due(now, h.size()) {
			h.save(now)
		}
	}
}

// sample asks for a picture and enters it. An engine that does not answer leaves a gap.
func (h *History) sample(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, fleetTimeout)
	defer cancel()
	p, err := h.cfg.Source.Fleet(ctx)
	if err != nil {
		h.prevTotal, h.prevAt = sched.Total{}, time.Time{}
		return
	}
	h.record(time.Now(), p)
}

// record records a picture that was taken now.
func (h *History) record(now time.Time, p *sched.FleetSnapshot) {
	slot := now.Unix() / resolutions[0].step
	since := 0.0
	if !h.prevAt.IsZero() {
		since = now.Sub(h.prevAt).Seconds()
	}
	figures := fleetFigures(p, h.prevTotal, since)
	h.prevTotal, h.prevAt = p.All.Total, now
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.isBehind(now, h.newest[0]-slot) {
		return
	}
	h.syncWorkers(p)
	h.advance(now.Unix())
	float32Codec.set(&h.fleet, slot, figures[:])
	for i := range p.Workers {
		w := &p.Workers[i]
		if r := h.workers[w.ID]; r != nil && w.Connected() {
			f := workerFigures(w)
			float16Codec.set(r, slot, f[:])
		}
	}
	for t := 1; t < tiers; t++ {
		fine, coarse := &resolutions[t-1], &resolutions[t]
		float32Codec.downsample(&h.fleet, fine, coarse, h.newest[t], h.newest[t-1])
		for _, r := range h.workers {
			float16Codec.downsample(r, fine, coarse, h.newest[t], h.newest[t-1])
		}
	}
}

// isBehind reports whether a picture is left out because the clock is behind the newest slot by so many. A clock that is far behind is usually set soon,
// such as by NTP after a boot. If it is not, it was far ahead before: what was recorded then is of no use and is forgotten.
func (h *History) isBehind(now time.Time, slots int64) bool {
	if slots <= maxClockSlip {
		h.behindSince = time.Time{}
		return slots > 0
	}
	if h.behindSince.IsZero() {
		h.behindSince = now
	}
	if now.Sub(h.behindSince) < clockResetAfter {
		return true
	}
	h.reset()
	h.behindSince = time.Time{}
	return false
}

// syncWorkers makes room for new workers, and forgets those that were removed.
func (h *History) syncWorkers(p *sched.FleetSnapshot) {
	present := make(map[muster.WorkerID]*sched.WorkerSnapshot, len(p.Workers))
	var disconnected []*sched.WorkerSnapshot
	for i := range p.Workers {
		w := &p.Workers[i]
		present[w.ID] = w
		if !w.Connected() && h.workers[w.ID] != nil {
			disconnected = append(disconnected, w)
		}
	}
	for id := range h.workers {
		if present[id] == nil {
			h.removeWorker(id)
		}
	}
	slices.SortFunc(disconnected, func(a, b *sched.WorkerSnapshot) int { return cmp.Compare(a.SeenAt, b.SeenAt) })
	for i := range p.Workers {
		w := &p.Workers[i]
		if h.workers[w.ID] != nil || !w.Connected() || len(w.ID) > maxIDSize {
			continue
		}
		if len(h.workers) >= MaxWorkers {
			if len(disconnected) == 0 {
				return
			}
			h.removeWorker(disconnected[0].ID)
			disconnected = disconnected[1:]
		}
		h.addWorker(w.ID)
	}
}

// advance goes to the slots of a time.
func (h *History) advance(unix int64) {
	for i := range resolutions {
		t := &resolutions[i]
		slot := unix / t.step
		float32Codec.advance(&h.fleet, t, h.newest[i], slot)
		for _, r := range h.workers {
			float16Codec.advance(r, t, h.newest[i], slot)
		}
		h.newest[i] = slot
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
	to := min(orDefault(q.To, now), now).Std().Unix()
	from := orDefault(q.From, muster.Time(to-3600)*1000).Std().Unix()
	from = max(min(from, to), now.Std().Unix()-retentionSeconds)
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
			answer.Series[name] = float32Codec.read(&h.fleet, t, i, first/t.step, step/t.step, n, h.newest[k])
		}
		return answer
	}
	for i, name := range workerSeries {
		answer.Series[name] = make([]*float64, n)
		if r := h.workers[q.Worker]; r != nil {
			answer.Series[name] = float16Codec.read(r, t, i, first/t.step, step/t.step, n, h.newest[k])
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

func orDefault(t, fallback muster.Time) muster.Time {
	if t == 0 {
		return fallback
	}
	return t
}
