package devices

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/gpu"
)

// record is what is known of a device, from one life of the worker to the next.
type record struct {
	Holders         map[muster.AttemptID]bool `json:"holders,omitempty"` // true for those that are giving it back
	Baseline        *muster.Size              `json:"base,omitempty"`    // memory in use by nobody known while no task had it; nil where unknown
	LastUnexplained *muster.Size              `json:"last,omitempty"`    // the same when the last task left
	ECC             *uint64                   `json:"ecc,omitempty"`     // memory errors that count no more
	ReportsMemory   bool                      `json:"tells,omitempty"`   // it has told its memory
	Unchecked       bool                      `json:"unchecked,omitempty"`
	Quarantine      *quarantine               `json:"quarantine,omitempty"`
	Forgiven        []string                  `json:"forgiven,omitempty"` // faults of the kernel's log from before it was healed
	Healed          muster.Time               `json:"healed,omitzero"`
}

// quarantineKind is what is wrong with a device.
type quarantineKind string

const (
	kindFault  quarantineKind = "fault"  // only an administrator takes it back
	kindMemory quarantineKind = "memory" // was not given back
	kindSilent quarantineKind = "silent" // it cannot be read
)

type quarantine struct {
	Kind   quarantineKind `json:"kind"`
	Reason string         `json:"why"`
	At     muster.Time    `json:"at"`
	Holder holder         `json:"of,omitzero"` // who had the device last
}

const (
	minTolerance = 256 << 20 // bytes that a driver may keep, or a 64th of the device
	forgivenFor  = 10 * time.Minute
)

// memoryTolerance is how much more memory than before may be in use.
func memoryTolerance(d *gpu.Device) muster.Size { return max(minTolerance, d.Memory/64) }

// setBaseline takes a reading for how the device is without tasks.
func (r *record) setBaseline(reading *gpu.Reading) {
	now := unexplainedMemory(reading)
	switch {
	case now == nil, r.Baseline == nil, r.LastUnexplained == nil, *now <= *r.Baseline:
		r.Baseline = now
	default: // what changed while nobody had it
		*r.Baseline += max(0, *now-*r.LastUnexplained)
	}
	r.LastUnexplained = nil
}

// unexplainedMemory is the memory in use that no listed process holds; nil where that is
// unknown. Processes that have ended, or are about to, hold nothing that is theirs.
func unexplainedMemory(reading *gpu.Reading) *muster.Size {
	if reading.Memory == nil {
		return nil
	}
	size := *reading.Memory
	for _, p := range reading.Processes {
		switch {
		case hasExited(p.PID):
		case p.Memory == 0:
			return nil // it is not told how much it holds
		default:
			size -= p.Memory
		}
	}
	size = max(0, size)
	return &size
}

// dropForgiven leaves out the faults that were found by a look at the kernel's log and
// may be from before the device was healed.
func (r *record) dropForgiven(faults []string) []string {
	if time.Since(r.Healed.Std()) >= forgivenFor {
		return faults
	}
	return slices.DeleteFunc(slices.Clone(faults), func(f string) bool { return slices.Contains(r.Forgiven, f) })
}

// faultReason says what of a reading is a fault, "" for nothing.
func (r *record) faultReason(reading *gpu.Reading) string {
	all := slices.Clone(reading.Faults)
	if n := reading.ECC; n != nil {
		if r.ECC != nil && *n > *r.ECC {
			all = append(all, fmt.Sprintf("errors of its memory could not be corrected (ECC): %d", *n-*r.ECC))
		} else {
			r.ECC = new(*n) // what was before is known, and the driver counts from its start
		}
	}
	return strings.Join(all, "; ")
}

// savedState is the file.
type savedState struct {
	Boot    string             `json:"boot"`
	Devices map[string]*record `json:"devices"`
}

// load reads what an earlier life kept.
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
		a.cfg.Log.Error("which GPUs were in quarantine is not known any more", slog.String("file", a.path), slog.Any("error", err))
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
		r.Baseline, r.LastUnexplained, r.Unchecked = nil, nil, false // nothing of before is in its memory
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

// save keeps all for the next life. The lock is held.
func (a *Allocator) save() {
	text, err := json.Marshal(savedState{Boot: a.cfg.BootID, Devices: a.records})
	if err == nil {
		err = writeAtomic(a.path, text)
	}
	if err != nil {
		a.cfg.Log.Warn("how the GPUs are is not kept for the worker's next life", slog.Any("error", err))
	}
}

// writeAtomic writes a file in one step.
func writeAtomic(path string, text []byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), ".gpus-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name()) // it is of no use
		}
	}()
	_, err = f.Write(text)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
