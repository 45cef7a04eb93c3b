package devices

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/gpu"
	"github.com/muster-dev/muster/internal/agent/run"
)

// Release implements process.DeviceAllocator.
func (a *Allocator) Release(ctx context.Context, id muster.AttemptID, g *muster.Grant, envTag string) error {
	if len(g.GPUs) == 0 {
		return nil
	}
	h := holder{EnvTag: envTag, Name: "task " + id.Task.String()}
	a.mu.Lock()
	for _, uuid := range g.GPUs {
		a.record(uuid).Holders[id] = true
	}
	a.mu.Unlock()
	found := a.inspect(ctx, g.GPUs, time.Now(), func(string) holder { return h })
	return a.finishRelease(id, g.GPUs, found, h)
}

func (a *Allocator) finishRelease(id muster.AttemptID, uuids []string, found map[string]finding, h holder) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	var failed []string
	for _, uuid := range uuids {
		r, f := a.record(uuid), found[uuid]
		delete(r.Holders, id)
		r.LastUnexplained = cmp.Or(f.unexplained, r.LastUnexplained)
		if f.kind != "" {
			a.quarantine(uuid, quarantine{Kind: f.kind, Reason: f.reason, Holder: h})
		}
		if q := r.Quarantine; q != nil && q.Kind != kindMemory {
			d := a.devices[uuid]
			failed = append(failed, fmt.Sprintf("GPU %d (%s): %s", d.Index, uuid, q.Reason))
		}
	}
	a.save()
	if failed != nil {
		return run.Failf(muster.GPUFault, "a GPU failed under the task: %s", strings.Join(failed, "; "))
	}
	return nil
}

// holder is a task that had a device.
type holder struct {
	EnvTag string `json:"mark"` // an environment entry that only its processes have; "" for no task
	Name   string `json:"name"`
}

// finding is the state of a device; the zero value means healthy.
type finding struct {
	kind        quarantineKind
	reason      string
	unexplained *muster.Size
	pending     bool // unknown so far
}

// inspect waits until the state of each device since a time is known, or ctx ends. holderOf returns the last holder of a device.
func (a *Allocator) inspect(ctx context.Context, uuids []string, since time.Time, holderOf func(uuid string) holder) map[string]finding {
	a.cfg.Readings.PollFaults()
	found := map[string]finding{}
	killed := map[int]bool{}
	pending := slices.Clone(uuids)
	tick := time.NewTicker(a.timeouts.poll)
	defer tick.Stop()
	for {
		checks := map[string]check{}
		for _, uuid := range pending {
			l := check{since: since, holder: holderOf(uuid), killed: killed}
			l.metricsAt, l.processesAt = a.cfg.Readings.LastSampled(uuid) // before the readings, so that these are not older
			checks[uuid] = l
		}
		latest := a.latestReadings()
		pending = slices.DeleteFunc(pending, func(uuid string) bool {
			l := checks[uuid]
			l.reading = latest[uuid]
			f := a.evaluate(uuid, &l)
			found[uuid] = f
			return !f.pending
		})
		if len(pending) == 0 {
			return found
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return found
		}
	}
}

type check struct {
	since                  time.Time // when it was released
	holder                 holder
	killed                 map[int]bool // orphans
	reading                gpu.Reading
	metricsAt, processesAt time.Time // when they were requested
}

// evaluate returns the state of a device by readings since it was released.
func (a *Allocator) evaluate(uuid string, l *check) finding {
	a.mu.Lock()
	defer a.mu.Unlock()
	d, r := a.devices[uuid], a.record(uuid)
	waited := time.Since(l.since)
	maxWait, cleanup := a.timeouts.reading, a.timeouts.cleanup
	if d.MIG != "" { // it is read less often
		maxWait, cleanup = a.timeouts.migReading, max(cleanup, a.timeouts.migReading/2)
	}
	if reason := r.faultReason(&l.reading); reason != "" {
		if r.Healed != 0 && muster.NewTime(l.metricsAt) <= r.Healed && waited < maxWait {
			return finding{pending: true} // a reading from before the device was healed does not count
		}
		return finding{kind: kindFault, reason: reason}
	}
	switch {
	case r.ReportsMemory && (l.reading.Memory == nil || l.metricsAt.Before(l.since)):
		if waited < maxWait {
			return finding{pending: true}
		}
		return finding{kind: kindSilent, reason: "its tool no longer reports its state"}
	case l.reading.Processes != nil && l.processesAt.Before(l.since) && waited < maxWait:
		return finding{pending: true}
	}
	exclusive := true
	for _, releasing := range r.Holders {
		exclusive = exclusive && releasing
	}
	if orphans := a.orphans(&l.reading, l.holder, exclusive); len(orphans) > 0 {
		if waited >= cleanup {
			return finding{kind: kindMemory, reason: fmt.Sprintf("process %d of %s is on it and does not exit, even when killed", orphans[0], l.holder.Name)}
		}
		a.killOrphans(orphans, l, exclusive)
		return finding{pending: true}
	}
	unexplained := unexplainedMemory(&l.reading)
	switch {
	case !exclusive || unexplained == nil || r.Baseline == nil || *unexplained <= *r.Baseline+memoryTolerance(&d):
		return finding{unexplained: unexplained}
	case waited < cleanup:
		return finding{pending: true}
	}
	return finding{kind: kindMemory, unexplained: unexplained, reason: fmt.Sprintf("%s of its memory was not freed after %s, and no listed process holds it", *unexplained-*r.Baseline, cmp.Or(l.holder.Name, "its last task"))}
}

// orphans lists the processes on a device that belong to its holder. exclusive reports that no other task has the device.
func (a *Allocator) orphans(reading *gpu.Reading, h holder, exclusive bool) []int {
	var list []int
	for _, p := range reading.Processes {
		if h.EnvTag != "" && belongsTo(p.PID, h.EnvTag, a.cfg.Data, exclusive) {
			list = append(list, p.PID)
		}
	}
	return list
}

func (a *Allocator) killOrphans(orphans []int, l *check, exclusive bool) {
	for _, pid := range orphans {
		err := kill(pid, func() bool { return belongsTo(pid, l.holder.EnvTag, a.cfg.Data, exclusive) })
		if !l.killed[pid] {
			l.killed[pid] = true
			a.cfg.Log.Warn("killed a process that a task left on its GPU", slog.Int("pid", pid), slog.String("of", l.holder.Name), slog.Any("error", err))
		}
	}
}
