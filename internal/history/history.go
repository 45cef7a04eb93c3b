// Package history records the load of the fleet and of each worker in the last week: every 10 seconds for an hour, every minute for
// twelve hours, every ten minutes for seven days. A worker takes 25 KB.
//
//	engine ──snapshot──► Run, every 10 s ──► rings in memory ──► file, at most once a minute, and at the end
//	                                               │
//	                                           Query ──► API
//
// The file is replaced atomically. A killed server loses the samples after the last save: a minute with few workers, up to nine
// minutes with 2,000. If the file is damaged, the history starts empty.
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

// Source provides snapshots of the fleet.
type Source interface {
	Fleet(ctx context.Context) (*sched.FleetSnapshot, error)
}

// Config configures a History.
type Config struct {
	Source Source
	File   string // path of the file
	Log    *slog.Logger
}

// maxWorkers is how many workers are recorded. A new worker replaces the one that is disconnected for the longest time.
const maxWorkers = 5_000

// History records the load. Its methods may be called at the same time as Run, which is called once.
type History struct {
	cfg Config

	mu      sync.RWMutex // only Run's goroutine writes, and it reads without the lock
	newest  [tiers]int64 // the newest slot of each tier, or 0
	fleet   rings[float32]
	workers map[muster.WorkerID]*rings[uint16]
	slabs   slabAllocator

	// Only Run's goroutine uses these.
	prevTotal   sched.Total
	prevAt      time.Time // of prevTotal
	behindSince time.Time // since when the clock has been behind by more than maxClockSlip, or zero
	schedule    saveSchedule
}

// Open reads the file. If it is missing or damaged, the history is empty.
func Open(cfg Config) *History {
	h := &History{cfg: cfg}
	h.reset()
	h.load()
	return h
}

func (h *History) reset() {
	h.newest = [tiers]int64{}
	h.fleet = newRings(len(fleetSeries), float32Codec.none, make([]float32, allSlots*len(fleetSeries)))
	h.workers, h.slabs = map[muster.WorkerID]*rings[uint16]{}, slabAllocator{}
}

func (h *History) addWorker(id muster.WorkerID) *rings[uint16] {
	r := newRings(len(workerSeries), float16Codec.none, h.slabs.alloc())
	h.workers[id] = &r
	return &r
}

func (h *History) removeWorker(id muster.WorkerID) {
	h.slabs.free = append(h.slabs.free, h.workers[id].data)
	delete(h.workers, id)
}

const (
	sampleInterval   = 10 * time.Second
	fleetTimeout     = 5 * time.Second  // of Source.Fleet
	maxClockSlip     = 360              // slots of the finest tier by which the clock may step back
	clockResetAfter  = 10 * time.Minute // after a larger step back, until the history is reset
	retentionSeconds = 7 * 24 * 3600
)

// Run takes a sample every ten seconds until ctx ends, and then saves the file.
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

// sample takes and records a snapshot. If the engine does not respond, there is a gap.
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

// record records a snapshot that was taken now.
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

// isBehind reports whether to skip a snapshot because the clock is behind the newest slot. A clock that is far behind is usually set soon,
// for example by NTP after a boot. Otherwise it was far ahead before: then the recorded data is useless and dropped.
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

// syncWorkers adds new workers, and drops removed ones.
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
		if len(h.workers) >= maxWorkers {
			if len(disconnected) == 0 {
				return
			}
			h.removeWorker(disconnected[0].ID)
			disconnected = disconnected[1:]
		}
		h.addWorker(w.ID)
	}
}

// advance moves all tiers to the slot of a time.
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
	From, To muster.Time     // default: an hour before To, and now
	Points   int             // the most steps, plus one
}

// Query returns the means of steps, each of them a multiple of the finest resolution that reaches back to From. An unknown
// worker has only nulls.
func (h *History) Query(now muster.Time, q Query) wire.History {
	to := min(cmp.Or(q.To, now), now).Std().Unix()
	from := cmp.Or(q.From, muster.Time(to-3600)*1000).Std().Unix()
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

// resolution chooses the tier of a query and the seconds of a step: the finest tier that reaches back to from, or a coarser one
// whose slots are not longer than the steps.
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
