package devices

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/muster-dev/muster"
)

// quarantine keeps a device from tasks, and reports whether that is new. The lock
// is held.
func (b *Board) quarantine(uuid string, now quarantine) bool {
	r := b.of(uuid)
	if q := r.Quarantine; q != nil && (q.Kind == fault && now.Kind != fault || q.Kind == now.Kind && q.Why == now.Why) {
		return false
	}
	now.At = muster.NewTime(time.Now())
	r.Quarantine = &now
	d := b.known[uuid]
	b.cfg.Log.Warn("a GPU is in quarantine", slog.String("gpu", uuid), slog.Int("index", d.Index), slog.String("why", now.Why), slog.Bool("until_healed", now.Kind == fault))
	b.save()
	return true
}

// release gives a device to tasks again. The lock is held.
func (b *Board) release(uuid string) {
	r := b.of(uuid)
	d := b.known[uuid]
	b.cfg.Log.Info("a GPU is out of quarantine", slog.String("gpu", uuid), slog.Int("index", d.Index), slog.String("was", r.Quarantine.Why))
	r.Quarantine = nil
	b.save()
}

// tell says which devices are withheld. The lock is held, so that nothing is
// overtaken.
func (b *Board) tell() {
	if b.cfg.Withhold != nil {
		b.cfg.Withhold(b.quarantined())
	}
}

// Heal has quarantined devices looked at again, and those released that are well;
// without uuids all of them. It does not block.
func (b *Board) Heal(uuids ...string) {
	b.mu.Lock()
	b.heal = append(b.heal, uuids...)
	b.every = b.every || len(uuids) == 0
	b.mu.Unlock()
	token(b.heals)
}

// Run looks after the devices until ctx ends. Without any it sleeps.
func (b *Board) Run(ctx context.Context) error {
	b.checkLeft(ctx)
	again := time.NewTicker(b.waits.again)
	defer again.Stop()
	for {
		ticks := again.C
		if b.none() {
			ticks = nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-b.heals:
			b.healAsked(ctx)
		case <-ticks:
			b.lookAgain(ctx)
		}
	}
}

func (b *Board) none() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.known) == 0
}

// checkLeft looks at devices whose tasks ended while nobody was there.
func (b *Board) checkLeft(ctx context.Context) {
	b.mu.Lock()
	uuids := b.those(func(_ string, r *record) bool { return r.Unchecked && len(r.Holders) == 0 })
	b.mu.Unlock()
	if len(uuids) == 0 {
		return
	}
	found := b.examine(ctx, uuids, time.Now(), func(string) owner { return owner{} })
	b.mu.Lock()
	defer b.mu.Unlock()
	for uuid, f := range found {
		r := b.of(uuid)
		if f.wait {
			continue // told to stop meanwhile
		}
		r.Unchecked, r.Last = false, f.left
		if f.kind != "" {
			b.quarantine(uuid, quarantine{Kind: f.kind, Why: f.why})
		}
	}
	b.tell()
	b.save()
}

// those lists devices in order. The lock is held.
func (b *Board) those(are func(uuid string, r *record) bool) []string {
	var list []string
	for uuid, r := range b.all {
		if _, known := b.known[uuid]; known && are(uuid, r) {
			list = append(list, uuid)
		}
	}
	slices.Sort(list)
	return list
}

// lookAgain finds new faults, and releases what has become well by itself.
func (b *Board) lookAgain(ctx context.Context) {
	latest := b.latest()
	b.mu.Lock()
	changed := false
	for _, uuid := range b.those(func(string, *record) bool { return true }) {
		if reading, ok := latest[uuid]; ok {
			if why := b.of(uuid).fault(&reading); why != "" {
				changed = b.quarantine(uuid, quarantine{Kind: fault, Why: why}) || changed
			}
		}
	}
	if changed {
		b.tell()
	}
	uuids := b.those(func(_ string, r *record) bool { return r.Quarantine != nil && r.Quarantine.Kind != fault })
	b.mu.Unlock()
	b.recover(ctx, uuids, false)
}

// healAsked looks at what an administrator asks for.
func (b *Board) healAsked(ctx context.Context) {
	b.mu.Lock()
	asked, every := b.heal, b.every
	b.heal, b.every = nil, false
	uuids := b.those(func(uuid string, r *record) bool {
		return r.Quarantine != nil && (every || slices.Contains(asked, uuid))
	})
	b.mu.Unlock()
	if len(uuids) == 0 {
		return
	}
	now := time.Now()
	for _, uuid := range uuids {
		b.cfg.Readings.Forget(uuid, now)
	}
	latest := b.latest()
	b.mu.Lock()
	for _, uuid := range uuids {
		r := b.of(uuid)
		r.ECC, r.Healed, r.Forgiven = nil, muster.NewTime(now), nil
		if r.Quarantine.Kind == fault {
			for part := range strings.SplitSeq(r.Quarantine.Why, "; ") {
				if strings.HasPrefix(part, "XID ") {
					r.Forgiven = append(r.Forgiven, part)
				}
			}
		}
		if reading, ok := latest[uuid]; ok {
			r.ECC = reading.ECC
		}
	}
	b.mu.Unlock()
	b.recover(ctx, uuids, true)
}

// recover releases those devices that are well. asked says that an administrator
// asked for it: then it waits for what is new, and says why not.
func (b *Board) recover(ctx context.Context, uuids []string, asked bool) {
	if len(uuids) == 0 {
		return
	}
	since := time.Now()
	if !asked {
		since = since.Add(-time.Hour) // what is known is new enough
	}
	found := b.examine(ctx, uuids, since, b.last)
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, uuid := range uuids {
		r, f := b.of(uuid), found[uuid]
		q := r.Quarantine
		switch {
		case f.wait || q == nil:
		case f.kind == "":
			r.Last = f.left
			b.release(uuid)
		case asked:
			r.Quarantine = nil
			b.quarantine(uuid, quarantine{Kind: f.kind, Why: f.why, Of: q.Of})
		case f.kind != q.Kind:
			b.quarantine(uuid, quarantine{Kind: f.kind, Why: f.why, Of: q.Of})
		}
	}
	b.tell()
}

// last is who had a quarantined device.
func (b *Board) last(uuid string) owner {
	b.mu.Lock()
	defer b.mu.Unlock()
	if q := b.of(uuid).Quarantine; q != nil {
		return q.Of
	}
	return owner{}
}
