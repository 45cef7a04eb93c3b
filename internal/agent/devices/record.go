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
	Holders    map[muster.AttemptID]bool `json:"holders,omitempty"` // true for those that are giving it back
	Base       *muster.Size              `json:"base,omitempty"`    // memory in use by nobody known while no task had it; nil where unknown
	Last       *muster.Size              `json:"last,omitempty"`    // the same when the last task left
	ECC        *uint64                   `json:"ecc,omitempty"`     // memory errors that count no more
	Tells      bool                      `json:"tells,omitempty"`   // it has told its memory
	Unchecked  bool                      `json:"unchecked,omitempty"`
	Quarantine *quarantine               `json:"quarantine,omitempty"`
	Forgiven   []string                  `json:"forgiven,omitempty"` // faults of the kernel's log from before it was healed
	Healed     muster.Time               `json:"healed,omitzero"`
}

// kind is what is wrong with a device.
type kind string

const (
	fault  kind = "fault"  // only an administrator takes it back
	memory kind = "memory" // was not given back
	silent kind = "silent" // it cannot be read
)

type quarantine struct {
	Kind kind        `json:"kind"`
	Why  string      `json:"why"`
	At   muster.Time `json:"at"`
	Of   owner       `json:"of,omitzero"` // who had the device last
}

const (
	tolerance = 256 << 20 // bytes that a driver may keep, or a 64th of the device
	pastHolds = 10 * time.Minute
)

// spare is how much more memory than before may be in use.
func spare(d *gpu.Device) muster.Size { return max(tolerance, d.Memory/64) }

// rebase takes a reading for how the device is without tasks.
func (r *record) rebase(reading *gpu.Reading) {
	now := unexplained(reading)
	switch {
	case now == nil, r.Base == nil, r.Last == nil, *now <= *r.Base:
		r.Base = now
	default: // what changed while nobody had it
		*r.Base += max(0, *now-*r.Last)
	}
	r.Last = nil
}

// unexplained is the memory in use that no listed process holds; nil where that is
// unknown. Processes that have ended, or are about to, hold nothing that is theirs.
func unexplained(reading *gpu.Reading) *muster.Size {
	if reading.Memory == nil {
		return nil
	}
	left := *reading.Memory
	for _, p := range reading.Processes {
		switch {
		case ended(p.PID):
		case p.Memory == 0:
			return nil // it is not told how much it holds
		default:
			left -= p.Memory
		}
	}
	left = max(0, left)
	return &left
}

// pardon leaves out the faults that were found by a look at the kernel's log and
// may be from before the device was healed.
func (r *record) pardon(faults []string) []string {
	if time.Since(r.Healed.Std()) >= pastHolds {
		return faults
	}
	return slices.DeleteFunc(slices.Clone(faults), func(f string) bool { return slices.Contains(r.Forgiven, f) })
}

// fault says what of a reading is a fault, "" for nothing.
func (r *record) fault(reading *gpu.Reading) string {
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

// kept is the file.
type kept struct {
	Boot    string             `json:"boot"`
	Devices map[string]*record `json:"devices"`
}

// load reads what an earlier life kept.
func (b *Board) load() map[string]*record {
	empty := map[string]*record{}
	text, err := os.ReadFile(b.path)
	if errors.Is(err, fs.ErrNotExist) {
		return empty
	}
	var k kept
	if err == nil {
		err = json.Unmarshal(text, &k)
	}
	if err != nil {
		b.cfg.Log.Error("which GPUs were in quarantine is not known any more", slog.String("file", b.path), slog.Any("error", err))
		return empty
	}
	for uuid, r := range k.Devices {
		if r == nil {
			delete(k.Devices, uuid)
			continue
		}
		if r.Holders == nil {
			r.Holders = map[muster.AttemptID]bool{}
		}
		for id := range r.Holders {
			r.Holders[id] = false
		}
		if k.Boot == b.cfg.Boot {
			continue
		}
		r.Base, r.Last, r.Unchecked = nil, nil, false // nothing of before is in its memory
		clear(r.Holders)
		if q := r.Quarantine; q != nil && q.Kind != fault {
			r.Quarantine = nil
		}
	}
	if k.Devices == nil {
		return empty
	}
	return k.Devices
}

// save keeps all for the next life. The lock is held.
func (b *Board) save() {
	text, err := json.Marshal(kept{Boot: b.cfg.Boot, Devices: b.all})
	if err == nil {
		err = replace(b.path, text)
	}
	if err != nil {
		b.cfg.Log.Warn("how the GPUs are is not kept for the worker's next life", slog.Any("error", err))
	}
}

// replace writes a file in one step.
func replace(path string, text []byte) (err error) {
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
