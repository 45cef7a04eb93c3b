package hostpolicy

import (
	"cmp"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/muster-dev/muster"
)

// Options are the operator's settings for sharing the machine. The profile sets those that are nil.
type Options struct {
	Profile      string
	MaxCPU       *float64     // percent of the host's cores in use
	MaxMemory    *float64     // percent of the host's memory in use
	MaxGPU       *float64     // average utilization of its devices in percent
	MemoryBuffer *float64     // share of the host's memory that stays free, 0 to 1
	MinFreeDisk  *muster.Size // of the data dir's disk that stays free; nil means DefaultMinFreeDisk
	CoolDown     *muster.Duration
	Hours        *Hours // nil means always
	AfterHours   string // Finish or Preempt
	Yield        bool   // preempt or freeze tasks when the owner's processes use GPUs
}

// What happens to running tasks when the hours end.
const (
	Finish  = "finish"
	Preempt = "preempt"
)

// DefaultCoolDown is the cool-down if neither the operator nor a profile sets one.
const DefaultCoolDown = 30 * time.Second

// Profile is a preset of Options.
type Profile struct {
	Name         string
	Slots        func(cores float64) int
	Cores        float64 // share of the cores that is offered
	MaxCPU       float64 // percent, as in Options; 100 means no threshold
	MaxMemory    float64
	MaxGPU       float64
	MemoryBuffer float64
	CoolDown     time.Duration
}

// Profiles lists all profiles. docs/workers.md has them as a table.
func Profiles() []Profile {
	return []Profile{{
		Name:  "benchmark", // one task at a time, with the whole machine
		Slots: func(float64) int { return 1 },
		Cores: 1, MaxCPU: 100, MaxMemory: 100, MaxGPU: 100, MemoryBuffer: 0.05, CoolDown: DefaultCoolDown,
	}, {
		Name:  "test", // one task per core
		Slots: func(cores float64) int { return max(2, int(cores)) },
		Cores: 1, MaxCPU: 90, MaxMemory: 85, MaxGPU: 95, MemoryBuffer: 0.1, CoolDown: DefaultCoolDown,
	}, {
		Name:  "light", // many small tasks, in half of the machine
		Slots: func(cores float64) int { return max(8, int(4*cores)) },
		Cores: 0.5, MaxCPU: 70, MaxMemory: 70, MaxGPU: 70, MemoryBuffer: 0.3, CoolDown: 10 * time.Second,
	}}
}

// ParseProfile checks the name of a profile and returns it.
func ParseProfile(s string) (string, error) {
	if _, ok := (&Options{Profile: s}).profile(); ok {
		return s, nil
	}
	var names []string
	for _, p := range Profiles() {
		names = append(names, p.Name)
	}
	hint := "use one of " + strings.Join(names, ", ")
	if near := muster.Nearest(s, names); near != "" {
		hint = "did you mean " + near + "?"
	}
	return "", muster.Errorf(muster.Invalid, "unknown profile %q: %s", s, hint)
}

func (o *Options) profile() (Profile, bool) {
	for _, p := range Profiles() {
		if p.Name == o.Profile {
			return p, true
		}
	}
	return Profile{}, false
}

// Apply reduces r, the resources of a machine, to what is offered: fewer cores and other slots by the profile, and memory
// without the buffer.
func (o *Options) Apply(r *muster.Resources) {
	p, ok := o.profile()
	if ok {
		r.Slots = p.Slots(r.CPUs)
		r.CPUs = math.Floor(r.CPUs*p.Cores*1000) / 1000
	}
	r.Memory -= muster.Size(math.Ceil(float64(r.Memory) * o.Buffer()))
}

// Buffer returns the share of the memory that stays free.
func (o *Options) Buffer() float64 {
	p, _ := o.profile()
	return *cmp.Or(o.MemoryBuffer, &p.MemoryBuffer)
}

func (o *Options) coolDown() time.Duration {
	if o.CoolDown != nil {
		return o.CoolDown.Std()
	}
	if p, ok := o.profile(); ok {
		return p.CoolDown
	}
	return DefaultCoolDown
}

// thresholds are those in use, by what they measure; others are nil.
type thresholds struct{ cpu, memory, gpu, disk *threshold }

// thresholds returns the thresholds. disk is the size of the data dir's disk, 0 if unknown.
func (o *Options) thresholds(disk muster.Size) thresholds {
	p, ok := o.profile()
	by := " of the profile " + p.Name
	if !ok {
		p, by = Profile{MaxCPU: 100, MaxMemory: 100, MaxGPU: 100}, ""
	}
	cool := o.coolDown()
	newPercent := func(name, flag string, value *float64, fallback float64) *threshold {
		high, source := *cmp.Or(value, &fallback), by
		if value != nil {
			source = ""
		}
		if high >= 100 {
			return nil
		}
		return newThreshold(name, flag+" "+formatNumber(high)+source, high, cool)
	}
	g := thresholds{
		cpu:    newPercent("cpu", "--max-cpu-percent", o.MaxCPU, p.MaxCPU),
		memory: newPercent("memory", "--max-memory-percent", o.MaxMemory, p.MaxMemory),
		gpu:    newPercent("gpu", "--max-gpu-percent", o.MaxGPU, p.MaxGPU),
	}
	b := o.Buffer()
	if high := 100 * (1 - b); b > 0 && (g.memory == nil || high < g.memory.high) {
		if o.MemoryBuffer != nil {
			by = ""
		}
		g.memory = newThreshold("memory", "the "+formatPercent(high)+" that --memory-buffer "+formatNumber(b)+by+" leaves", high, cool)
	}
	if least := o.minFreeDisk(disk); least > 0 {
		g.disk = newFreeThreshold("disk", "--min-free-disk "+least.String(), least, cool)
	}
	return g
}

// minFreeDisk returns how much of a disk of that size stays free.
func (o *Options) minFreeDisk(disk muster.Size) muster.Size {
	switch {
	case o.MinFreeDisk != nil:
		return *o.MinFreeDisk
	case disk > 0:
		return min(DefaultMinFreeDisk, disk/20)
	}
	return DefaultMinFreeDisk
}

// MissingDisk returns how much more of the data dir's disk must be free for a worker to accept tasks again, 0 if enough is.
func (o *Options) MissingDisk(d muster.DiskLoad) muster.Size {
	least := o.minFreeDisk(d.Total)
	if d.Free >= least {
		return 0
	}
	return least + least/4 - d.Free
}

// isLow reports whether little of a disk is left above what stays free: less than a tenth of the disk, and less than twice what stays
// free or lowDisk, whichever is more.
func (o *Options) isLow(d *muster.DiskLoad) bool {
	least := o.minFreeDisk(d.Total)
	left := d.Free - least
	return left < d.Total/10 && left < max(2*least, lowDisk)
}

func formatNumber(f float64) string { return strconv.FormatFloat(f, 'g', -1, 64) }
