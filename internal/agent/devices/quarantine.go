package devices

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/wake"
)

// quarantine puts a device into quarantine. The caller holds the lock.
func (a *Allocator) quarantine(uuid string, next quarantine) {
	r := a.record(uuid)
	if q := r.Quarantine; q != nil && (q.Kind == kindFault && next.Kind != kindFault || q.Kind == next.Kind && q.Reason == next.Reason) {
		return
	}
	next.At = muster.NewTime(time.Now())
	r.Quarantine = &next
	d := a.devices[uuid]
	a.cfg.Log.Warn("GPU quarantined", slog.String("gpu", uuid), slog.Int("index", d.Index), slog.String("why", next.Reason), slog.Bool("until_healed", next.Kind == kindFault))
	a.save()
	a.publishWithheld()
}

// unquarantine releases a device. The caller holds the lock.
func (a *Allocator) unquarantine(uuid string) {
	r := a.record(uuid)
	d := a.devices[uuid]
	a.cfg.Log.Info("GPU released from quarantine", slog.String("gpu", uuid), slog.Int("index", d.Index), slog.String("was", r.Quarantine.Reason))
	r.Quarantine = nil
	a.save()
	a.publishWithheld()
}

// publishWithheld calls Config.Withhold. The caller holds the lock, so that calls are in order.
func (a *Allocator) publishWithheld() {
	if a.cfg.Withhold != nil {
		a.cfg.Withhold(a.quarantined())
	}
}

// Heal checks devices in quarantine again, and releases those that are healthy; without uuids it checks all.
// It does not block.
func (a *Allocator) Heal(uuids ...string) {
	a.mu.Lock()
	a.healRequests = append(a.healRequests, uuids...)
	a.healAll = a.healAll || len(uuids) == 0
	a.mu.Unlock()
	wake.Set(a.wake)
}

// Run checks the devices until ctx ends. Without devices it sleeps.
func (a *Allocator) Run(ctx context.Context) error {
	a.checkUnchecked(ctx)
	recheck := time.NewTicker(a.timeouts.recheck)
	for {
		ticks := recheck.C
		if a.idle() {
			ticks = nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-a.wake:
			a.healRequested(ctx)
		case <-ticks:
			a.recheck(ctx)
		}
	}
}

func (a *Allocator) idle() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.devices) == 0
}

// checkUnchecked checks devices whose tasks ended while the worker did not run.
func (a *Allocator) checkUnchecked(ctx context.Context) {
	a.mu.Lock()
	uuids := a.filter(func(_ string, r *record) bool { return r.Unchecked && len(r.Holders) == 0 })
	a.mu.Unlock()
	if len(uuids) == 0 {
		return
	}
	found := a.inspect(ctx, uuids, time.Now(), func(string) holder { return holder{} })
	a.mu.Lock()
	defer a.mu.Unlock()
	for uuid, f := range found {
		r := a.record(uuid)
		if f.pending {
			continue // ctx ended
		}
		r.Unchecked, r.LastUnexplained = false, f.unexplained
		if f.kind != "" {
			a.quarantine(uuid, quarantine{Kind: f.kind, Reason: f.reason})
		}
	}
	a.save()
}

// filter lists known devices in order. The caller holds the lock.
func (a *Allocator) filter(match func(uuid string, r *record) bool) []string {
	var list []string
	for uuid, r := range a.records {
		if _, known := a.devices[uuid]; known && match(uuid, r) {
			list = append(list, uuid)
		}
	}
	slices.Sort(list)
	return list
}

// recheck finds new faults, and releases devices that became healthy.
func (a *Allocator) recheck(ctx context.Context) {
	latest := a.latestReadings()
	a.mu.Lock()
	for _, uuid := range a.filter(func(string, *record) bool { return true }) {
		if reading, ok := latest[uuid]; ok {
			if reason := a.record(uuid).faultReason(&reading); reason != "" {
				a.quarantine(uuid, quarantine{Kind: kindFault, Reason: reason})
			}
		}
	}
	uuids := a.filter(func(_ string, r *record) bool { return r.Quarantine != nil && r.Quarantine.Kind != kindFault })
	a.mu.Unlock()
	a.releaseHealthy(ctx, uuids, false)
}

func (a *Allocator) healRequested(ctx context.Context) {
	a.mu.Lock()
	requested, all := a.healRequests, a.healAll
	a.healRequests, a.healAll = nil, false
	uuids := a.filter(func(uuid string, r *record) bool {
		return r.Quarantine != nil && (all || slices.Contains(requested, uuid))
	})
	a.mu.Unlock()
	if len(uuids) == 0 {
		return
	}
	now := time.Now()
	for _, uuid := range uuids {
		a.cfg.Readings.ForgetFaults(uuid, now)
	}
	latest := a.latestReadings()
	a.mu.Lock()
	for _, uuid := range uuids {
		r := a.record(uuid)
		r.ECC, r.Healed, r.Forgiven = nil, muster.NewTime(now), nil
		if r.Quarantine.Kind == kindFault {
			for part := range strings.SplitSeq(r.Quarantine.Reason, "; ") {
				if strings.HasPrefix(part, "XID ") {
					r.Forgiven = append(r.Forgiven, part)
				}
			}
		}
		if reading, ok := latest[uuid]; ok {
			r.ECC = reading.ECC
		}
	}
	a.mu.Unlock()
	a.releaseHealthy(ctx, uuids, true)
}

// releaseHealthy releases devices that are healthy. After a request it waits for new readings, and logs why a device stays
// in quarantine.
func (a *Allocator) releaseHealthy(ctx context.Context, uuids []string, requested bool) {
	if len(uuids) == 0 {
		return
	}
	since := time.Now()
	if !requested {
		since = since.Add(-time.Hour) // any reading is new enough
	}
	found := a.inspect(ctx, uuids, since, a.lastHolder)
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, uuid := range uuids {
		r, f := a.record(uuid), found[uuid]
		q := r.Quarantine
		switch {
		case f.pending || q == nil:
		case f.kind == "":
			r.LastUnexplained = f.unexplained
			a.unquarantine(uuid)
		case requested || f.kind != q.Kind:
			if requested {
				r.Quarantine = nil // so that it is logged again
			}
			a.quarantine(uuid, quarantine{Kind: f.kind, Reason: f.reason, Holder: q.Holder})
		}
	}
}

func (a *Allocator) lastHolder(uuid string) holder {
	a.mu.Lock()
	defer a.mu.Unlock()
	if q := a.record(uuid).Quarantine; q != nil {
		return q.Holder
	}
	return holder{}
}
