package devices

import (
	"context"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/gpu"
	"github.com/muster-dev/muster/internal/agent/run"
)

// Config is what a Board is made of.
type Config struct {
	Data     string                  // the worker's data dir
	Boot     string                  // names this life of the machine; "" where nothing does
	Readings Readings                // of the devices
	Held     []muster.AttemptID      // that an earlier life of the worker started
	Withhold func(map[string]string) // is told why devices are given to nobody, by UUID: all of them, at each change
	Log      *slog.Logger
}

// Readings are those of a gpu.Stream.
type Readings interface {
	// Latest returns the newest readings, false while there are none.
	Latest() (gpu.Readings, bool)
	// Seen says when a device was asked for its last figures, and when its last list
	// of processes came; the zero time stands for never.
	Seen(uuid string) (figures, processes time.Time)
	// Look reads at once what the kernel says of devices.
	Look()
	// Forget drops what the kernel said of a device before a time.
	Forget(uuid string, before time.Time)
}

// Board implements run.Devices. Its quarantines change while Run runs.
type Board struct {
	cfg   Config
	path  string
	waits waits
	heals chan struct{} // holds one token if there is something to heal, or new devices

	mu    sync.Mutex
	known map[string]gpu.Device // all that were found in this life, by UUID
	all   map[string]*record    // by UUID
	heal  []string              // asked for
	every bool                  // all are asked for
}

var _ run.Devices = (*Board)(nil)

// waits are how long the board has patience.
type waits struct {
	tick    time.Duration // between looks at readings
	settle  time.Duration // for memory to be given back and strays to end
	silence time.Duration // for a reading to come
	part    time.Duration // the same for a MIG instance, whose readings are rare
	again   time.Duration // between looks at what is in quarantine
}

var patience = waits{tick: 100 * time.Millisecond, settle: 10 * time.Second, silence: 20 * time.Second, part: 45 * time.Second, again: 30 * time.Second}

// New returns the board of a data dir, with what an earlier life of the worker
// kept. found are the devices of the machine, as gpu.Probe finds them.
func New(cfg Config, found []gpu.Device) *Board {
	b := &Board{
		cfg: cfg, path: filepath.Join(cfg.Data, "gpus.json"), waits: patience,
		heals: make(chan struct{}, 1), known: map[string]gpu.Device{},
	}
	b.all = b.load()
	for _, r := range b.all {
		for id := range r.Holders {
			if !slices.Contains(cfg.Held, id) {
				delete(r.Holders, id)
				r.Unchecked = true
			}
		}
	}
	b.Set(found)
	return b
}

// Set says which devices there are from now on. Those that are gone stay known:
// tasks may have them still.
func (b *Board) Set(found []gpu.Device) {
	b.mu.Lock()
	defer b.mu.Unlock()
	changed := false
	for i := range found {
		d := found[i]
		b.known[d.UUID] = d
		r := b.of(d.UUID)
		r.Tells = r.Tells || d.Reading.Memory != nil
		if r.Healed != 0 {
			b.cfg.Readings.Forget(d.UUID, r.Healed.Std())
			d.Reading.Faults = r.pardon(d.Reading.Faults)
		}
		if why := r.fault(&d.Reading); why != "" {
			changed = b.quarantine(d.UUID, quarantine{Kind: fault, Why: why}) || changed
		}
	}
	if changed {
		b.tell()
	}
	token(b.heals)
}

// of returns the record of a device. The lock is held.
func (b *Board) of(uuid string) *record {
	r := b.all[uuid]
	if r == nil {
		r = &record{Holders: map[muster.AttemptID]bool{}}
		b.all[uuid] = r
	}
	return r
}

// Quarantined says why devices are given to nobody, by UUID.
func (b *Board) Quarantined() map[string]string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.quarantined()
}

func (b *Board) quarantined() map[string]string {
	list := map[string]string{}
	for uuid, r := range b.all {
		if r.Quarantine != nil {
			list[uuid] = r.Quarantine.Why
		}
	}
	return list
}

// Take implements run.Devices.
func (b *Board) Take(_ context.Context, a muster.AttemptID, g *muster.Grant) {
	if len(g.GPUs) == 0 {
		return
	}
	latest := b.latest()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, uuid := range g.GPUs {
		r := b.of(uuid)
		reading, ok := latest[uuid]
		if !ok { // none came yet
			d := b.known[uuid]
			reading = d.Reading
		}
		if len(r.Holders) == 0 {
			r.rebase(&reading)
		}
		r.Tells = r.Tells || reading.Memory != nil
		r.Holders[a] = false
	}
	b.save()
}

// latest returns the last readings by UUID. Those that have nothing to tell are not there.
func (b *Board) latest() map[string]gpu.Reading {
	list := map[string]gpu.Reading{}
	all, ok := b.cfg.Readings.Latest()
	if !ok {
		return list
	}
	for i := range all.Each {
		r := all.Each[i]
		if r.Memory != nil || r.ECC != nil || r.Temperature != nil || r.Utilization != nil || r.Processes != nil || len(r.Faults) > 0 {
			list[r.UUID] = r
		}
	}
	return list
}

// token puts one into c unless it holds one.
func token(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
