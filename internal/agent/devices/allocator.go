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
	Data      string                  // the worker's data dir
	BootID    string                  // names this life of the machine; "" where nothing does
	Readings  Readings                // of the devices
	Recovered []muster.AttemptID      // that an earlier life of the worker started
	Withhold  func(map[string]string) // is told why devices are given to nobody, by UUID: all of them, at each change
	Log       *slog.Logger
}

// Readings are those of a gpu.Stream.
type Readings interface {
	// Latest returns the newest readings, false while there are none.
	Latest() (gpu.Readings, bool)
	// LastSampled says when a device was asked for its last figures, and when its last list
	// of processes came; the zero time stands for never.
	LastSampled(uuid string) (metrics, processes time.Time)
	// PollFaults reads at once what the kernel says of devices.
	PollFaults()
	// ForgetFaults drops what the kernel said of a device before a time.
	ForgetFaults(uuid string, before time.Time)
}

// Allocator implements run.Devices. Its quarantines change while Run runs.
type Allocator struct {
	cfg      Config
	path     string
	timeouts timeouts
	wake     chan struct{} // holds one token if there is something to heal, or new devices

	mu           sync.Mutex
	devices      map[string]gpu.Device // all that were found in this life, by UUID
	records      map[string]*record    // by UUID
	healRequests []string              // asked for
	healAll      bool                  // all are asked for
}

var _ run.DeviceAllocator = (*Allocator)(nil)

// timeouts are how long the board has patience.
type timeouts struct {
	poll       time.Duration // between looks at readings
	cleanup    time.Duration // for memory to be given back and strays to end
	reading    time.Duration // for a reading to come
	migReading time.Duration // the same for a MIG instance, whose readings are rare
	recheck    time.Duration // between looks at what is in quarantine
}

var defaultTimeouts = timeouts{poll: 100 * time.Millisecond, cleanup: 10 * time.Second, reading: 20 * time.Second, migReading: 45 * time.Second, recheck: 30 * time.Second}

// New returns the board of a data dir, with what an earlier life of the worker
// kept. found are the devices of the machine, as gpu.Probe finds them.
func New(cfg Config, found []gpu.Device) *Allocator {
	a := &Allocator{
		cfg: cfg, path: filepath.Join(cfg.Data, "gpus.json"), timeouts: defaultTimeouts,
		wake: make(chan struct{}, 1), devices: map[string]gpu.Device{},
	}
	a.records = a.load()
	for _, r := range a.records {
		for id := range r.Holders {
			if !slices.Contains(cfg.Recovered, id) {
				delete(r.Holders, id)
				r.Unchecked = true
			}
		}
	}
	a.SetDevices(found)
	return a
}

// SetDevices says which devices there are from now on. Those that are gone stay known:
// tasks may have them still.
func (a *Allocator) SetDevices(found []gpu.Device) {
	a.mu.Lock()
	defer a.mu.Unlock()
	changed := false
	for i := range found {
		d := found[i]
		a.devices[d.UUID] = d
		r := a.record(d.UUID)
		r.ReportsMemory = r.ReportsMemory || d.Reading.Memory != nil
		if r.Healed != 0 {
			a.cfg.Readings.ForgetFaults(d.UUID, r.Healed.Std())
			d.Reading.Faults = r.dropForgiven(d.Reading.Faults)
		}
		if reason := r.faultReason(&d.Reading); reason != "" {
			changed = a.quarantine(d.UUID, quarantine{Kind: kindFault, Reason: reason}) || changed
		}
	}
	if changed {
		a.publishWithheld()
	}
	notify(a.wake)
}

// record returns the record of a device. The lock is held.
func (a *Allocator) record(uuid string) *record {
	r := a.records[uuid]
	if r == nil {
		r = &record{Holders: map[muster.AttemptID]bool{}}
		a.records[uuid] = r
	}
	return r
}

// Quarantined says why devices are given to nobody, by UUID.
func (a *Allocator) Quarantined() map[string]string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.quarantined()
}

func (a *Allocator) quarantined() map[string]string {
	list := map[string]string{}
	for uuid, r := range a.records {
		if r.Quarantine != nil {
			list[uuid] = r.Quarantine.Reason
		}
	}
	return list
}

// Acquire implements run.Devices.
func (a *Allocator) Acquire(_ context.Context, id muster.AttemptID, g *muster.Grant) {
	if len(g.GPUs) == 0 {
		return
	}
	latest := a.latestReadings()
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, uuid := range g.GPUs {
		r := a.record(uuid)
		reading, ok := latest[uuid]
		if !ok { // none came yet
			d := a.devices[uuid]
			reading = d.Reading
		}
		if len(r.Holders) == 0 {
			r.setBaseline(&reading)
		}
		r.ReportsMemory = r.ReportsMemory || reading.Memory != nil
		r.Holders[id] = false
	}
	a.save()
}

// latestReadings returns the last readings by UUID. Those that have nothing to tell are not there.
func (a *Allocator) latestReadings() map[string]gpu.Reading {
	list := map[string]gpu.Reading{}
	all, ok := a.cfg.Readings.Latest()
	if !ok {
		return list
	}
	for i := range all.Devices {
		r := all.Devices[i]
		if r.Memory != nil || r.ECC != nil || r.Temperature != nil || r.Utilization != nil || r.Processes != nil || len(r.Faults) > 0 {
			list[r.UUID] = r
		}
	}
	return list
}

// notify puts one into c unless it holds one.
func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
