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

// Give implements run.Devices.
func (b *Board) Give(ctx context.Context, a muster.AttemptID, g *muster.Grant, mark string) error {
	if len(g.GPUs) == 0 {
		return nil
	}
	of := owner{Mark: mark, Name: "task " + a.Task.String()}
	b.giving(a, g.GPUs)
	found := b.examine(ctx, g.GPUs, time.Now(), func(string) owner { return of })
	return b.given(a, g.GPUs, found, of)
}

func (b *Board) giving(a muster.AttemptID, uuids []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, uuid := range uuids {
		b.of(uuid).Holders[a] = true
	}
}

// given notes what was found when an attempt left.
func (b *Board) given(a muster.AttemptID, uuids []string, found map[string]finding, of owner) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	changed := false
	var failed []string
	for _, uuid := range uuids {
		r, f := b.of(uuid), found[uuid]
		delete(r.Holders, a)
		r.Last = cmp.Or(f.left, r.Last)
		if f.kind != "" {
			changed = b.quarantine(uuid, quarantine{Kind: f.kind, Why: f.why, Of: of}) || changed
		}
		if q := r.Quarantine; q != nil && q.Kind != memory {
			d := b.known[uuid]
			failed = append(failed, fmt.Sprintf("GPU %d (%s): %s", d.Index, uuid, q.Why))
		}
	}
	if changed {
		b.tell()
	}
	b.save()
	if failed != nil {
		return run.Failf(muster.GPUFault, "a device failed under the task: %s", strings.Join(failed, "; "))
	}
	return nil
}

// owner is who had a device.
type owner struct {
	Mark string `json:"mark"` // an environment entry that only its processes have; "" for nobody
	Name string `json:"name"`
}

// finding is how a device was found; the zero one means that it is well.
type finding struct {
	kind kind
	why  string
	left *muster.Size // memory that nobody known holds
	wait bool         // it is not known yet
}

// examine waits until it is known of each device how it is since a time. of says
// who had it.
func (b *Board) examine(ctx context.Context, uuids []string, since time.Time, of func(uuid string) owner) map[string]finding {
	b.cfg.Readings.Look()
	found := map[string]finding{}
	told := map[int]bool{}
	open := slices.Clone(uuids)
	tick := time.NewTicker(b.waits.tick)
	defer tick.Stop()
	for {
		looks := map[string]look{}
		for _, uuid := range open {
			l := look{since: since, of: of(uuid), told: told}
			l.figures, l.lists = b.cfg.Readings.Seen(uuid) // first, so that what is read is not older
			looks[uuid] = l
		}
		latest := b.latest()
		open = slices.DeleteFunc(open, func(uuid string) bool {
			l := looks[uuid]
			l.reading, l.readable = latest[uuid]
			f := b.judge(uuid, &l)
			found[uuid] = f
			return !f.wait
		})
		if len(open) == 0 {
			return found
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return found
		}
	}
}

// look is what is seen of a device.
type look struct {
	since          time.Time // when it was given back
	of             owner
	told           map[int]bool // strays that were ended
	reading        gpu.Reading
	readable       bool
	figures, lists time.Time // when they were asked for
}

// judge says how a device is, by readings that came since it was given back.
func (b *Board) judge(uuid string, l *look) finding {
	b.mu.Lock()
	defer b.mu.Unlock()
	d, r := b.known[uuid], b.of(uuid)
	waited := time.Since(l.since)
	silence, settle := b.waits.silence, b.waits.settle
	if d.MIG != "" { // whose readings are rare
		silence, settle = b.waits.part, max(settle, b.waits.part/2)
	}
	if why := r.fault(&l.reading); why != "" {
		if r.Healed != 0 && muster.NewTime(l.figures) <= r.Healed && waited < silence {
			return finding{wait: true} // what was read before an administrator said that it is mended does not count
		}
		return finding{kind: fault, why: why}
	}
	switch {
	case r.Tells && (l.reading.Memory == nil || l.figures.Before(l.since)):
		if waited < silence {
			return finding{wait: true}
		}
		return finding{kind: silent, why: "its tool does not tell any more how it is"}
	case l.reading.Processes != nil && l.lists.Before(l.since) && waited < silence:
		return finding{wait: true}
	}
	alone := true
	for _, giving := range r.Holders {
		alone = alone && giving
	}
	if strays := b.strays(&l.reading, l.of, alone); len(strays) > 0 {
		if waited >= settle {
			return finding{kind: memory, why: fmt.Sprintf("process %d of %s is on it and does not end, even when killed", strays[0], l.of.Name)}
		}
		b.end(strays, l, alone)
		return finding{wait: true}
	}
	left := unexplained(&l.reading)
	switch {
	case !alone || left == nil || r.Base == nil || *left <= *r.Base+spare(&d):
		return finding{left: left}
	case waited < settle:
		return finding{wait: true}
	}
	return finding{kind: memory, left: left, why: fmt.Sprintf("%s of its memory was not given back after %s: no process is known that holds it", *left-*r.Base, cmp.Or(l.of.Name, "its last task"))}
}

// strays lists the processes on a device that are its owner's. alone says that
// nobody else has it.
func (b *Board) strays(reading *gpu.Reading, of owner, alone bool) []int {
	var list []int
	for _, p := range reading.Processes {
		if of.Mark != "" && belongs(p.PID, of.Mark, b.cfg.Data, alone) {
			list = append(list, p.PID)
		}
	}
	return list
}

// end kills strays.
func (b *Board) end(strays []int, l *look, alone bool) {
	for _, pid := range strays {
		err := kill(pid, func() bool { return belongs(pid, l.of.Mark, b.cfg.Data, alone) })
		if !l.told[pid] {
			l.told[pid] = true
			b.cfg.Log.Warn("ended a process that a task left on its GPU", slog.Int("pid", pid), slog.String("of", l.of.Name), slog.Any("error", err))
		}
	}
}
