package meter

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/gpu"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/usageseries"
)

// subject is an attempt that is measured.
type subject struct {
	Subject
	handler Handler
	started time.Time
	limits  bool // there are limits for check

	mu         sync.Mutex
	nextSample time.Time
	nextCheck  time.Time // of the limits
	measured   time.Time // the last measurement, from which rates count
	sampled    time.Time
	cpu        cpuCounter
	io         ioCounters
	sums       usageseries.Accumulator
	pending    usageseries.Peaks // since the last sample

	disk     *muster.Size
	entries  int       // files and folders in disk
	tooDeep  bool      // the folders cannot be measured
	nextWalk time.Time // of the folders

	vramSince time.Time // when the attempt exceeded its VRAM budget
	stopped   bool      // Exceeded was called
}

func newSubject(s *Subject, h Handler, now time.Time) *subject {
	sub := &subject{Subject: *s, handler: h, started: now, measured: now, sampled: now, nextSample: aligned(now.Add(firstSample), checkInterval), nextWalk: now.Add(firstSample)}
	if r := s.Task.Recovered; r != nil {
		sub.started = r.Started.Std()
	}
	sub.sums = sub.newSums()
	c := s.Isolation
	sub.limits = c != nil && (c.WatchMemory > 0 || c.WatchPIDs > 0 || c.WatchDisk > 0) || s.Task.Grant.GPUMemory > 0
	if sub.limits {
		sub.nextCheck = sub.checkAfter(now)
	}
	return sub
}

// checkAfter returns when the limits are checked next: less often if there is only the worker's limit of the disk, which most tasks are far
// from.
func (sub *subject) checkAfter(now time.Time) time.Time {
	c := sub.Isolation
	if sub.Task.Grant.GPUMemory == 0 && sub.Task.Grant.Disk == 0 && c != nil && c.WatchMemory == 0 && c.WatchPIDs == 0 {
		return aligned(now.Add(minInterval), minInterval)
	}
	return aligned(now.Add(checkInterval), checkInterval)
}

func (sub *subject) due() time.Time {
	sub.mu.Lock()
	defer sub.mu.Unlock()
	if sub.limits && !sub.stopped && sub.nextCheck.Before(sub.nextSample) {
		return sub.nextCheck
	}
	return sub.nextSample
}

// update takes a sample if it is due, and checks the limits.
func (sub *subject) update(ctx context.Context, now time.Time, src *sources, cfg *Config) {
	s, exceeded, warning := sub.sample(ctx, now, src, cfg)
	if s != nil {
		sub.handler.Sampled(*s)
	}
	if warning != "" {
		sub.handler.Warned(warning)
	}
	if exceeded != nil {
		sub.handler.Exceeded(exceeded)
	}
}

func (sub *subject) sample(ctx context.Context, now time.Time, src *sources, cfg *Config) (s *muster.Sample, exceeded *run.Stopped, warning string) {
	var counted run.CgroupStats
	if cfg.Isolator != nil && sub.Isolation != nil {
		counted = cfg.Isolator.CurrentStats(sub.Isolation)
	}
	sub.mu.Lock()
	defer sub.mu.Unlock()
	procs := sub.processes(ctx, src, cfg, &counted)
	usage := sub.measureUsage(now, src, &counted, procs)
	sub.measured = now
	if sub.limits && !sub.stopped {
		sub.nextCheck = sub.checkAfter(now)
		exceeded, warning = sub.check(now, &usage)
		sub.stopped = exceeded != nil
	}
	if now.Before(sub.nextSample) && exceeded == nil {
		sub.pending.Observe(&usage)
		return nil, nil, warning
	}
	sub.sums.Add(&usage, now.Sub(sub.sampled))
	sub.sums.MergePeaks(&sub.pending)
	sub.sampled, sub.pending = now, usageseries.Peaks{}
	sub.nextSample = aligned(now.Add(min(maxInterval, max(minInterval, now.Sub(sub.started)/ageDivisor))), minInterval)
	return &usage, exceeded, warning
}

// processes returns the attempt's processes, or nil if control groups count everything. Only for an attempt without a
// control group it reads all processes of the machine.
func (sub *subject) processes(ctx context.Context, src *sources, cfg *Config, c *run.CgroupStats) []process {
	fields := processFields{
		load:      c.CPU == nil || c.Memory == nil || c.PIDs == nil,
		transfers: c.Read == nil || c.Written == nil,
	}
	if fields == (processFields{}) && len(sub.Task.Grant.GPUs) == 0 {
		return nil
	}
	if cfg.Isolator != nil && sub.Isolation != nil {
		if pids, ok := cfg.Isolator.Processes(sub.Isolation); ok {
			list := make([]process, 0, len(pids))
			for _, pid := range pids {
				if p, ok := readProcess(ctx, pid, fields); ok {
					list = append(list, p)
				}
			}
			return list
		}
	}
	table := src.processes()
	return table.tree(sub.Pid.PID, sub.Pid.StartTicks)
}

// measureUsage measures what the attempt uses now. Rates are averages since the last measurement.
func (sub *subject) measureUsage(now time.Time, src *sources, c *run.CgroupStats, procs []process) muster.Sample {
	s := muster.Sample{At: muster.NewTime(now), Memory: c.Memory, Disk: sub.disk, NetIn: src.in, NetOut: src.out}
	span := now.Sub(sub.measured).Seconds()
	s.CPU = sub.cpu.rate(c.CPU, procs, span)
	var resident muster.Size
	threads := 0
	for i := range procs {
		resident += procs[i].memory
		threads += procs[i].Threads
	}
	if s.Memory == nil && len(procs) > 0 {
		s.Memory = &resident
	}
	if s.PIDs = threads; c.PIDs != nil {
		s.PIDs = *c.PIDs
	}
	s.Read, s.Write = sub.io.rates(c, procs, span)
	for _, id := range sub.Task.Grant.GPUs {
		s.GPUs = append(s.GPUs, device(id, src.devices.Devices, procs))
	}
	round(&s)
	return s
}

// round drops digits that are not significant, since a series is stored as text. It replaces the sample's pointers.
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

// device returns the load of a device, and how much of its memory the processes hold.
func device(id string, all []gpu.Reading, procs []process) muster.GPUSample {
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
		if slices.ContainsFunc(procs, func(q process) bool { return q.PID == p.PID }) {
			*g.OwnMemory += p.Memory
		}
	}
	return g
}

func (sub *subject) newSums() usageseries.Accumulator {
	return usageseries.Accumulator{Shared: sub.Task.Grant.GPUMemory > 0}
}

// vramGrace is how long an attempt may be over its share of a device's memory.
const vramGrace = 10 * time.Second

// check compares a measurement with the limits that the kernel does not enforce.
func (sub *subject) check(now time.Time, s *muster.Sample) (exceeded *run.Stopped, warning string) {
	stop := func(reason muster.Reason, format string, args ...any) (*run.Stopped, string) {
		return &run.Stopped{Outcome: muster.AttemptFailed, Reason: reason, Message: fmt.Sprintf(format, args...)}, ""
	}
	if c := sub.Isolation; c != nil {
		switch {
		case c.WatchMemory > 0 && s.Memory != nil && *s.Memory > c.WatchMemory:
			return stop(muster.OutOfMemory, "stopped because it used %s of memory, more than its limit of %s: ask for more with resources.memory", *s.Memory, c.WatchMemory)
		case c.WatchPIDs > 0 && s.PIDs > c.WatchPIDs:
			return stop(muster.PIDLimit, "stopped because it had %d processes and threads, more than its limit of %d: ask for more with resources.pids", s.PIDs, c.WatchPIDs)
		case c.WatchDisk > 0 && s.Disk != nil && *s.Disk > c.WatchDisk:
			return stop(muster.DiskLimit, "stopped because its folders took %s of disk with %d files and folders (each counts as at least 4KiB), more than its limit of %s: ask for more with resources.disk", *s.Disk, sub.entries, c.WatchDisk)
		case c.WatchDisk > 0 && sub.tooDeep:
			return stop(muster.DiskLimit, "stopped because its folders are nested too deeply to be measured: their paths are longer than the system accepts")
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
			return nil, fmt.Sprintf("the task holds %s of the memory of GPU %s and was granted %s: it is stopped in %s unless it frees some", *g.OwnMemory, g.UUID, budget, vramGrace)
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

// walkDue returns when the folders are measured next.
func (sub *subject) walkDue() time.Time {
	sub.mu.Lock()
	defer sub.mu.Unlock()
	return sub.nextWalk
}

// diskLimit returns the limit of the folders, and how often they are measured.
func (sub *subject) diskLimit() (limit muster.Size, interval time.Duration) {
	switch c := sub.Isolation; {
	case c == nil || c.WatchDisk == 0:
		return 0, walkInterval
	case sub.Task.Grant.Disk == 0:
		return c.WatchDisk, minInterval
	default:
		return c.WatchDisk, checkInterval
	}
}

// walker returns the one for the folders: with a limit there is none on the files, since many small ones must not evade it, and it ends when it
// has found more.
func (sub *subject) walker() walker {
	if limit, _ := sub.diskLimit(); limit > 0 {
		return walker{maxEntries: math.MaxInt, maxSize: limit}
	}
	return walker{maxEntries: maxFiles, maxSize: math.MaxInt64}
}

// walk measures the folders: every second if the task has a limit, every 5 seconds if only the worker has one, else every 30 seconds, but
// for at most a tenth of the time.
func (sub *subject) walk(ctx context.Context) {
	folders := []string{sub.Folders.Base}
	if c := sub.Folders.Checkpoint; c != "" {
		folders = append(folders, c)
	}
	folders = append(folders, sub.Written...)
	_, interval := sub.diskLimit()
	begin := time.Now()
	w := sub.walker()
	err := w.walk(ctx, folders)
	now := time.Now()
	sub.mu.Lock()
	defer sub.mu.Unlock()
	sub.nextWalk = now.Add(max(interval, 10*now.Sub(begin)))
	sub.tooDeep = errors.Is(err, errTooDeep)
	if err == nil {
		sub.disk, sub.entries = &w.size, w.entries
	}
}
