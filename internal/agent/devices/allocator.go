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
	"github.com/muster-dev/muster/internal/wake"
)

// Config configures an Allocator.
type Config struct {
	Data      string                  // the worker's data dir
	BootID    string                  // of the machine; "" if unknown
	Readings  Readings                // of the devices
	Recovered []muster.AttemptID      // attempts that were started before a restart of the worker
	Withhold  func(map[string]string) // called at each change with the reason for each device in quarantine, by UUID
	Log       *slog.Logger
}

// Readings are the parts of a gpu.Stream that an Allocator needs.
type Readings interface {
	// Latest returns the newest readings, false while there are none.
	Latest() (gpu.Readings, bool)
	// LastSampled returns when the last figures of a device and its last list of processes were requested;
	// the zero time means never.
	LastSampled(uuid string) (metrics, processes time.Time)
	// PollFaults reads the faults in the kernel's log now.
	PollFaults()
	// ForgetFaults drops the faults that the kernel reported of a device before a time.
	ForgetFaults(uuid string, before time.Time)
}

// Allocator implements run.DeviceAllocator. Quarantines change while Run runs.
type Allocator struct {
	cfg      Config
	path     string
	timeouts timeouts
	wake     chan struct{} // holds one token after Heal or SetDevices

	mu           sync.Mutex
	devices      map[string]gpu.Device // all that were found since the worker started, by UUID
	records      map[string]*record    // by UUID
	healRequests []string              // UUIDs
	healAll      bool
}

type timeouts struct {
	poll       time.Duration // between checks of the readings
	cleanup    time.Duration // until memory is freed and orphans end
	reading    time.Duration // until a reading arrives
	migReading time.Duration // the same for a MIG instance, which is read less often
	recheck    time.Duration // between checks of devices in quarantine
}

var defaultTimeouts = timeouts{poll: 100 * time.Millisecond, cleanup: 10 * time.Second, reading: 20 * time.Second, migReading: 45 * time.Second, recheck: 30 * time.Second}

// New returns the allocator of a data dir with the state that was saved there. found are the devices of the machine, as
// gpu.Probe returns them.
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

// SetDevices replaces the list of devices. Those that were removed stay known: tasks may still have them.
func (a *Allocator) SetDevices(found []gpu.Device) {
	a.mu.Lock()
	defer a.mu.Unlock()
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
			a.quarantine(d.UUID, quarantine{Kind: kindFault, Reason: reason})
		}
	}
	wake.Set(a.wake)
}

// record returns the record of a device. The caller holds the lock.
func (a *Allocator) record(uuid string) *record {
	r := a.records[uuid]
	if r == nil {
		r = &record{Holders: map[muster.AttemptID]bool{}}
		a.records[uuid] = r
	}
	return r
}

// Quarantined returns why devices are in quarantine, by UUID.
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

// Acquire implements run.DeviceAllocator.
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
		if !ok {
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

// latestReadings returns the last readings by UUID, without those that have no figures.
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
