package devices

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/gpu"
	"github.com/muster-dev/muster/internal/atomicfile"
)

// record is what is known of a device. It survives a restart of the worker.
type record struct {
	Holders         map[muster.AttemptID]bool `json:"holders,omitempty"` // true for those that are releasing it
	Baseline        *muster.Size              `json:"base,omitempty"`    // memory in use by no listed process while no task had it; nil if unknown
	LastUnexplained *muster.Size              `json:"last,omitempty"`    // the same when the last task ended
	ECC             *uint64                   `json:"ecc,omitempty"`     // memory errors that are known and do not count
	ReportsMemory   bool                      `json:"tells,omitempty"`   // it has reported its memory
	Unchecked       bool                      `json:"unchecked,omitempty"`
	Quarantine      *quarantine               `json:"quarantine,omitempty"`
	Forgiven        []string                  `json:"forgiven,omitempty"` // faults in the kernel's log from before it was healed
	Healed          muster.Time               `json:"healed,omitzero"`
}

// quarantineKind is what is wrong with a device.
type quarantineKind string

const (
	kindFault  quarantineKind = "fault"  // only an administrator releases it
	kindMemory quarantineKind = "memory" // memory was not freed
	kindSilent quarantineKind = "silent" // it cannot be read
)

type quarantine struct {
	Kind   quarantineKind `json:"kind"`
	Reason string         `json:"why"`
	At     muster.Time    `json:"at"`
	Holder holder         `json:"of,omitzero"` // the last task on the device
}

const (
	minTolerance = 256 << 20 // bytes of memory that a driver may keep; or a 64th of the device
	forgivenFor  = 10 * time.Minute
)

// memoryTolerance is how much more memory than before may be in use after a task.
func memoryTolerance(d *gpu.Device) muster.Size { return max(minTolerance, d.Memory/64) }

// setBaseline sets the baseline from a reading of the idle device.
func (r *record) setBaseline(reading *gpu.Reading) {
	now := unexplainedMemory(reading)
	switch {
	case now == nil, r.Baseline == nil, r.LastUnexplained == nil, *now <= *r.Baseline:
		r.Baseline = now
	default: // add what changed while it was idle
		*r.Baseline += max(0, *now-*r.LastUnexplained)
	}
	r.LastUnexplained = nil
}

// unexplainedMemory returns the memory in use that no listed process holds, nil if it is unknown. Processes that have exited, or
// are about to, hold none.
func unexplainedMemory(reading *gpu.Reading) *muster.Size {
	if reading.Memory == nil {
		return nil
	}
	size := *reading.Memory
	for _, p := range reading.Processes {
		switch {
		case hasExited(p.PID):
		case p.Memory == 0:
			return nil // how much it holds is unknown
		default:
			size -= p.Memory
		}
	}
	size = max(0, size)
	return &size
}

// dropForgiven drops the faults that may be in the kernel's log from before the device was healed.
func (r *record) dropForgiven(faults []string) []string {
	if time.Since(r.Healed.Std()) >= forgivenFor {
		return faults
	}
	return slices.DeleteFunc(slices.Clone(faults), func(f string) bool { return slices.Contains(r.Forgiven, f) })
}

// faultReason returns the faults in a reading, "" for none.
func (r *record) faultReason(reading *gpu.Reading) string {
	all := slices.Clone(reading.Faults)
	if n := reading.ECC; n != nil {
		if r.ECC != nil && *n > *r.ECC {
			all = append(all, fmt.Sprintf("uncorrectable memory errors (ECC): %d", *n-*r.ECC))
		} else {
			r.ECC = new(*n) // the first count, or the driver was loaded again
		}
	}
	return strings.Join(all, "; ")
}

type savedState struct {
	Boot    string             `json:"boot"`
	Devices map[string]*record `json:"devices"`
}

func (a *Allocator) load() map[string]*record {
	empty := map[string]*record{}
	text, err := os.ReadFile(a.path)
	if errors.Is(err, fs.ErrNotExist) {
		return empty
	}
	var state savedState
	if err == nil {
		err = json.Unmarshal(text, &state)
	}
	if err != nil {
		a.cfg.Log.Error("cannot read the state of the GPUs, quarantines are forgotten", slog.String("file", a.path), slog.Any("error", err))
		return empty
	}
	for uuid, r := range state.Devices {
		if r == nil {
			delete(state.Devices, uuid)
			continue
		}
		if r.Holders == nil {
			r.Holders = map[muster.AttemptID]bool{}
		}
		for id := range r.Holders {
			r.Holders[id] = false
		}
		if state.Boot == a.cfg.BootID {
			continue
		}
		r.Baseline, r.LastUnexplained, r.Unchecked = nil, nil, false // the machine was restarted, which clears its memory
		clear(r.Holders)
		if q := r.Quarantine; q != nil && q.Kind != kindFault {
			r.Quarantine = nil
		}
	}
	if state.Devices == nil {
		return empty
	}
	return state.Devices
}

// save stores the state. The caller holds the lock.
func (a *Allocator) save() {
	text, err := json.Marshal(savedState{Boot: a.cfg.BootID, Devices: a.records})
	if err == nil {
		err = atomicfile.Write(a.path, text, 0o600)
	}
	if err != nil {
		a.cfg.Log.Warn("cannot save the state of the GPUs, it is lost when the worker restarts", slog.Any("error", err))
	}
}
