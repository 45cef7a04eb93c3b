package muster

import (
	"math"
	"slices"
	"strconv"
	"strings"
)

// Size is a number of bytes. In JSON it is written as a number; it is also read from
// strings such as "10GiB", "512MB" or "4G" (KiB, MiB, GiB, TiB and single letters are
// powers of 1024; KB, MB, GB, TB are powers of 1000).
type Size int64

var sizeUnits = []struct {
	name string
	mult float64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40},
	{"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12},
	{"K", 1 << 10}, {"M", 1 << 20}, {"G", 1 << 30}, {"T", 1 << 40}, {"B", 1}, {"", 1},
}

// ParseSize reads a size of 0 to 2^62 bytes.
func ParseSize(s string) (Size, error) {
	for _, u := range sizeUnits {
		num, ok := strings.CutSuffix(strings.ToLower(s), strings.ToLower(u.name))
		if !ok {
			continue
		}
		n, err := strconv.ParseFloat(strings.TrimSpace(num), 64)
		if err != nil || math.IsNaN(n) || n < 0 || n*u.mult > 1<<62 {
			break
		}
		return Size(math.Round(n * u.mult)), nil
	}
	return 0, Errorf(Invalid, "%q is not a size: write bytes or a form such as 512MiB or 10GB", s)
}

// String returns the size with a binary unit and at most one decimal.
func (s Size) String() string {
	f, unit := float64(s), "B"
	for _, u := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if f < 1024 {
			break
		}
		f, unit = f/1024, u
	}
	return strconv.FormatFloat(math.Round(f*10)/10, 'f', -1, 64) + unit
}

// UnmarshalJSON reads a number of bytes or a quoted size.
func (s *Size) UnmarshalJSON(b []byte) error {
	t := string(b)
	if n, err := strconv.ParseInt(t, 10, 64); err == nil && n >= 0 && n <= 1<<62 {
		*s = Size(n)
		return nil
	}
	if len(t) >= 2 && t[0] == '"' {
		t = t[1 : len(t)-1]
	}
	v, err := ParseSize(t)
	if err != nil {
		return err
	}
	*s = v
	return nil
}

// Request is the resources that one task needs. A task without CPUs takes one
// slot; a task with CPUs takes no slot.
type Request struct {
	CPUs   float64    `json:"cpus,omitempty"` // cores, in steps of 0.001
	Memory Size       `json:"memory,omitempty"`
	Disk   Size       `json:"disk,omitempty"`
	PIDs   int        `json:"pids,omitempty"` // maximum number of processes and threads; 0 means the worker's limit
	GPUs   GPURequest `json:"gpus,omitzero"`
}

// Vendors lists the values of GPURequest.Vendor.
var Vendors = []string{"nvidia", "amd", "intel", "apple"}

// GPURequest asks for devices. Without Memory or Share the task gets whole devices;
// with both it gets Memory bytes of each device, and other tasks may share the rest.
type GPURequest struct {
	Count  int    `json:"count,omitempty"`
	Memory Size   `json:"memory,omitempty"` // VRAM of each device
	Share  bool   `json:"share,omitempty"`
	Vendor string `json:"vendor,omitempty"` // nvidia, amd, intel, apple
	Model  string `json:"model,omitempty"`  // part of the device's name, any case
}

// Resources is what a worker offers.
type Resources struct {
	CPUs   float64 `json:"cpus"`
	Memory Size    `json:"memory"`
	Disk   Size    `json:"disk"`
	Slots  int     `json:"slots"` // maximum number of running tasks without cpus
	GPUs   []GPU   `json:"gpus,omitempty"`

	MaxTasks int `json:"max_tasks,omitempty"` // maximum number of running tasks; 0 means no limit
}

// GPU is one device, identified by its UUID.
type GPU struct {
	UUID   string `json:"uuid"`
	Index  int    `json:"index"`
	Vendor string `json:"vendor"`
	Name   string `json:"name"`
	Memory Size   `json:"memory"`
	MIG    string `json:"mig,omitempty"`    // profile of a MIG instance
	Parent string `json:"parent,omitempty"` // UUID of the device of a MIG instance

	Quarantined string `json:"quarantined,omitempty"` // why no task gets it until it is healed or passes a check
}

// Grant is the resources that one attempt got. GPUs has device UUIDs in the order in
// which the task sees them.
type Grant struct {
	CPUs      float64  `json:"cpus,omitempty"`
	Memory    Size     `json:"memory,omitempty"`
	Disk      Size     `json:"disk,omitempty"`
	Slots     int      `json:"slots,omitempty"`
	GPUs      []string `json:"gpus,omitempty"`
	GPUMemory Size     `json:"gpu_memory,omitempty"` // per device, if shared; 0 means whole devices
	PIDs      int      `json:"pids,omitempty"`
}

// Equal reports whether two grants are the same, or both nil.
func (g *Grant) Equal(h *Grant) bool {
	if g == nil || h == nil {
		return g == h
	}
	return g.CPUs == h.CPUs && g.Memory == h.Memory && g.Disk == h.Disk && g.Slots == h.Slots &&
		slices.Equal(g.GPUs, h.GPUs) && g.GPUMemory == h.GPUMemory && g.PIDs == h.PIDs
}

// Where limits the workers that may run a task.
type Where struct {
	Tags        []string `json:"tags,omitempty"`      // the worker must have all of them
	ExcludeTags []string `json:"not,omitempty"`       // the worker must have none of them
	Workers     []string `json:"workers,omitempty"`   // only these, by name or id
	MaxPrice    float64  `json:"max_price,omitempty"` // per hour; 0 means any
}
