package meter

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/gpu"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/series"
)

// subject is one attempt that is measured.
type subject struct {
	run.Subject
	watcher run.Watcher
	started time.Time
	limits  bool // some are to be watched

	mu       sync.Mutex
	next     time.Time // sample
	look     time.Time // at the limits
	measured time.Time // the last measurement: rates count from it
	sampled  time.Time
	cpu      clock // of the group, or of the tree
	io       counters
	sums     series.Accumulator
	pending  series.Peaks // since the last sample

	disk     *muster.Size
	nextWalk time.Time // of the folders

	vramSince time.Time // over its budget since then
	over      bool      // Exceeded was said
}

func newSubject(s *run.Subject, w run.Watcher, now time.Time) *subject {
	sub := &subject{Subject: *s, watcher: w, started: now, measured: now, sampled: now, next: aligned(now.Add(first), watching), nextWalk: now.Add(first)}
	if h := s.Task.Held; h != nil {
		sub.started = h.Started.Std()
	}
	sub.sums = sub.noSums()
	c := s.Confine
	sub.limits = c != nil && (c.WatchMemory > 0 || c.WatchPIDs > 0 || c.WatchDisk > 0) || s.Task.Grant.GPUMemory > 0
	if sub.limits {
		sub.look = aligned(now.Add(watching), watching)
	}
	return sub
}

func (sub *subject) due() time.Time {
	sub.mu.Lock()
	defer sub.mu.Unlock()
	if sub.limits && !sub.over && sub.look.Before(sub.next) {
		return sub.look
	}
	return sub.next
}

// measure takes a sample if it is due, and looks at the limits.
func (sub *subject) measure(ctx context.Context, now time.Time, w *world, cfg *Config) {
	s, exceeded, warning := sub.read(ctx, now, w, cfg)
	if s != nil {
		sub.watcher.Sampled(*s)
	}
	if warning != "" {
		sub.watcher.Warned(warning)
	}
	if exceeded != nil {
		sub.watcher.Exceeded(exceeded)
	}
}

func (sub *subject) read(ctx context.Context, now time.Time, w *world, cfg *Config) (s *muster.Sample, exceeded *run.Stopped, warning string) {
	var counted run.Counted
	if cfg.Limits != nil && sub.Confine != nil {
		counted = cfg.Limits.Used(sub.Confine)
	}
	sub.mu.Lock()
	defer sub.mu.Unlock()
	mine := sub.processes(ctx, w, cfg, &counted)
	point := sub.point(now, w, &counted, mine)
	sub.measured = now
	if sub.limits && !sub.over {
		sub.look = aligned(now.Add(watching), watching)
		exceeded, warning = sub.check(now, &point)
		sub.over = exceeded != nil
	}
	if now.Before(sub.next) && exceeded == nil {
		sub.pending.Observe(&point)
		return nil, nil, warning
	}
	sub.sums.Add(&point, now.Sub(sub.sampled))
	sub.sums.MergePeaks(&sub.pending)
	sub.sampled, sub.pending = now, series.Peaks{}
	sub.next = aligned(now.Add(min(seldom, max(often, now.Sub(sub.started)/spread))), often)
	return &point, exceeded, warning
}

// processes returns the attempt's processes, none if everything is counted without them. Only an
// attempt without a control group needs all processes of the machine.
func (sub *subject) processes(ctx context.Context, w *world, cfg *Config, c *run.Counted) []process {
	want := wanted{
		load:      c.CPU == nil || c.Memory == nil || c.PIDs == nil,
		transfers: c.Read == nil || c.Written == nil,
	}
	if want == (wanted{}) && len(sub.Task.Grant.GPUs) == 0 {
		return nil
	}
	if cfg.Limits != nil && sub.Confine != nil {
		if pids, ok := cfg.Limits.Processes(sub.Confine); ok {
			mine := make([]process, 0, len(pids))
			for _, pid := range pids {
				if p, ok := processOf(ctx, pid, want); ok {
					mine = append(mine, p)
				}
			}
			return mine
		}
	}
	procs := w.procs()
	return procs.tree(sub.Pid.PID, sub.Pid.StartTicks)
}

// point measures what the attempt uses now. Rates are those since the last
// measurement.
func (sub *subject) point(now time.Time, w *world, c *run.Counted, mine []process) muster.Sample {
	s := muster.Sample{At: muster.NewTime(now), Memory: c.Memory, Disk: sub.disk, NetIn: w.in, NetOut: w.out}
	span := now.Sub(sub.measured).Seconds()
	s.CPU = sub.cpu.rate(c.CPU, mine, span)
	var resident muster.Size
	threads := 0
	for i := range mine {
		resident += mine[i].memory
		threads += mine[i].threads
	}
	if s.Memory == nil && len(mine) > 0 {
		s.Memory = &resident
	}
	if s.PIDs = threads; c.PIDs != nil {
		s.PIDs = *c.PIDs
	}
	s.Read, s.Write = sub.io.rates(c, mine, span)
	for _, id := range sub.Task.Grant.GPUs {
		s.GPUs = append(s.GPUs, device(id, w.devices.Each, mine))
	}
	round(&s)
	return s
}

// round leaves out digits that nobody measured: a series is kept as text. The sample's
// figures become its own.
func round(s *muster.Sample) {
	to := func(p **float64, unit float64) {
		if *p != nil {
			*p = new(math.Round(**p*unit) / unit)
		}
	}
	to(&s.CPU, 1000)
	to(&s.Read, 1)
	to(&s.Write, 1)
	to(&s.NetIn, 1)
	to(&s.NetOut, 1)
	for i := range s.GPUs {
		g := &s.GPUs[i]
		to(&g.Utilization, 1000)
		to(&g.Temperature, 10)
		to(&g.Power, 10)
		to(&g.Latency, 1000)
	}
}

// device is how a device does, and what of its memory the processes hold.
func device(id string, all []gpu.Reading, mine []process) muster.GPUSample {
	i := slices.IndexFunc(all, func(r gpu.Reading) bool { return r.UUID == id })
	if i < 0 {
		return muster.GPUSample{GPULoad: muster.GPULoad{UUID: id}}
	}
	g := muster.GPUSample{GPULoad: all[i].GPULoad}
	if all[i].Processes == nil {
		return g
	}
	g.OwnMemory = new(muster.Size)
	for _, p := range all[i].Processes {
		if slices.ContainsFunc(mine, func(q process) bool { return q.pid == p.PID }) {
			*g.OwnMemory += p.Memory
		}
	}
	return g
}

// noSums are those of a series that begins.
func (sub *subject) noSums() series.Accumulator {
	return series.Accumulator{Shared: sub.Task.Grant.GPUMemory > 0}
}

// vramGrace is how long an attempt may be over its share of a device's memory.
const vramGrace = 10 * time.Second

// check compares a measurement with the limits that no kernel enforces.
func (sub *subject) check(now time.Time, s *muster.Sample) (exceeded *run.Stopped, warning string) {
	stop := func(reason muster.Reason, format string, args ...any) (*run.Stopped, string) {
		return &run.Stopped{Outcome: muster.AttemptFailed, Reason: reason, Message: fmt.Sprintf(format, args...)}, ""
	}
	if c := sub.Confine; c != nil {
		switch {
		case c.WatchMemory > 0 && s.Memory != nil && *s.Memory > c.WatchMemory:
			return stop(muster.OutOfMemory, "stopped because it used %s of memory and may have %s: ask for more with resources.memory", *s.Memory, c.WatchMemory)
		case c.WatchPIDs > 0 && s.PIDs > c.WatchPIDs:
			return stop(muster.PIDLimit, "stopped because it had %d processes and threads and may have %d: ask for more with resources.pids", s.PIDs, c.WatchPIDs)
		case c.WatchDisk > 0 && s.Disk != nil && *s.Disk > c.WatchDisk:
			return stop(muster.DiskLimit, "stopped because its folders took %s of disk and may take %s: ask for more with resources.disk", *s.Disk, c.WatchDisk)
		}
	}
	return sub.checkVRAM(now, s)
}

func (sub *subject) checkVRAM(now time.Time, s *muster.Sample) (exceeded *run.Stopped, warning string) {
	budget := sub.Task.Grant.GPUMemory
	if budget == 0 {
		return nil, ""
	}
	for i := range s.GPUs {
		g := &s.GPUs[i]
		if g.OwnMemory == nil || *g.OwnMemory <= budget {
			continue
		}
		if sub.vramSince.IsZero() {
			sub.vramSince = now
			return nil, fmt.Sprintf("it holds %s of the memory of GPU %s and was granted %s: it is stopped in %s unless it gives some back", *g.OwnMemory, g.UUID, budget, vramGrace)
		}
		if now.Sub(sub.vramSince) < vramGrace {
			return nil, ""
		}
		return &run.Stopped{Outcome: muster.AttemptFailed, Reason: muster.GPUMemory, Message: fmt.Sprintf(
			"stopped because it held %s of the memory of GPU %s for %s and was granted %s: ask for more with resources.gpus.memory", *g.OwnMemory, g.UUID, vramGrace, budget)}, ""
	}
	sub.vramSince = time.Time{}
	return nil, ""
}

// walkDue returns when the folders are to be looked at.
func (sub *subject) walkDue() time.Time {
	sub.mu.Lock()
	defer sub.mu.Unlock()
	return sub.nextWalk
}

func (sub *subject) watchesDisk() bool { return sub.Confine != nil && sub.Confine.WatchDisk > 0 }

// most is how many files are counted: with many small ones a task is not rid of its
// limit.
func (sub *subject) most() int {
	if sub.watchesDisk() {
		return math.MaxInt
	}
	return mostFiles
}

// walk measures the folders: more often where a limit is watched, but never for more
// than a tenth of the time.
func (sub *subject) walk(ctx context.Context) {
	folders := []string{sub.Folders.Base}
	if c := sub.Folders.Checkpoint; c != "" {
		folders = append(folders, c)
	}
	every := walking
	if sub.watchesDisk() {
		every = watching
	}
	begin := time.Now()
	size, ok := taken(ctx, folders, sub.most())
	now := time.Now()
	sub.mu.Lock()
	defer sub.mu.Unlock()
	sub.nextWalk = now.Add(max(every, 10*now.Sub(begin)))
	if ok {
		sub.disk = &size
	}
}
