package guard

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/muster-dev/muster"
)

// Options are what the operator said of how a machine is shared. What is not
// said, nil, is as the profile has it.
type Options struct {
	Profile      string
	MaxCPU       *float64     // percent of the host's cores in use
	MaxMemory    *float64     // percent of the host's memory in use
	MaxGPU       *float64     // percent of the time in which its devices compute, on average
	MemoryBuffer *float64     // share of the host's memory that stays free, 0 to 1
	MinFreeDisk  *muster.Size // of the data dir's disk that stays free; nil means DefaultMinFreeDisk
	CoolDown     *muster.Duration
	Hours        *Hours // nil means always
	HoursThen    string // Finish or Preempt
	Yield        bool   // tasks make way for the owner's processes on GPUs
}

// What becomes of running tasks when the hours end.
const (
	Finish  = "finish"
	Preempt = "preempt"
)

// DefaultCoolDown is the cool-down where neither the operator nor a profile says.
const DefaultCoolDown = 30 * time.Second

// Profile is a set of defaults for one sort of tasks.
type Profile struct {
	Name         string
	Slots        func(cores float64) int
	Cores        float64 // share of the cores that is offered
	MaxCPU       float64 // percent, as in Options; 100 is never exceeded
	MaxMemory    float64
	MaxGPU       float64
	MemoryBuffer float64
	CoolDown     time.Duration
}

// Profiles lists all there are. docs/workers.md has them as a table.
func Profiles() []Profile {
	return []Profile{{
		Name:  "benchmark", // one at a time, with all of the machine
		Slots: func(float64) int { return 1 },
		Cores: 1, MaxCPU: 100, MaxMemory: 100, MaxGPU: 100, MemoryBuffer: 0.05, CoolDown: DefaultCoolDown,
	}, {
		Name:  "test", // one for each core
		Slots: func(cores float64) int { return max(2, int(cores)) },
		Cores: 1, MaxCPU: 90, MaxMemory: 85, MaxGPU: 95, MemoryBuffer: 0.1, CoolDown: DefaultCoolDown,
	}, {
		Name:  "light", // many small ones, in half of the machine
		Slots: func(cores float64) int { return max(8, int(4*cores)) },
		Cores: 0.5, MaxCPU: 70, MaxMemory: 70, MaxGPU: 70, MemoryBuffer: 0.3, CoolDown: 10 * time.Second,
	}}
}

// ParseProfile returns the name of a profile.
func ParseProfile(s string) (string, error) {
	var names []string
	for _, p := range Profiles() {
		if p.Name == s {
			return s, nil
		}
		names = append(names, p.Name)
	}
	hint := "write one of " + strings.Join(names, ", ")
	if near := muster.Nearest(s, names); near != "" {
		hint = "did you mean " + near + "?"
	}
	return "", muster.Errorf(muster.Invalid, "%q is no profile: %s", s, hint)
}

func (o *Options) profile() (Profile, bool) {
	for _, p := range Profiles() {
		if p.Name == o.Profile {
			return p, true
		}
	}
	return Profile{}, false
}

// Shape makes of r, what a machine has, what is offered of it: fewer cores and
// other slots as the profile says, and memory without the buffer.
func (o *Options) Shape(r *muster.Resources) {
	p, ok := o.profile()
	if ok {
		r.Slots = p.Slots(r.CPUs)
		r.CPUs = math.Floor(r.CPUs*p.Cores*1000) / 1000
	}
	r.Memory -= muster.Size(math.Ceil(float64(r.Memory) * o.Buffer()))
}

// Buffer is the share of the memory that stays free.
func (o *Options) Buffer() float64 {
	p, _ := o.profile()
	return said(o.MemoryBuffer, p.MemoryBuffer)
}

func (o *Options) coolDown() time.Duration {
	usual := DefaultCoolDown
	if p, ok := o.profile(); ok {
		usual = p.CoolDown
	}
	return said(o.CoolDown, muster.Duration(usual)).Std()
}

// said is what the operator said, else what is usual.
func said[T any](word *T, usual T) T {
	if word != nil {
		return *word
	}
	return usual
}

// gates are the thresholds that there are, by what they measure; nil for none.
type gates struct{ cpu, memory, gpu, disk *gate }

// disk is the size of the data dir's disk, 0 where it is unknown.
func (o *Options) gates(disk muster.Size) gates {
	p, ok := o.profile()
	by := " of the profile " + p.Name
	if !ok {
		p, by = Profile{MaxCPU: 100, MaxMemory: 100, MaxGPU: 100}, ""
	}
	cool := o.coolDown()
	at := func(name, flag string, word *float64, usual float64) *gate {
		most, whose := said(word, usual), by
		if word != nil {
			whose = ""
		}
		if most >= 100 {
			return nil
		}
		return newGate(name, flag+" "+number(most)+whose, most, cool)
	}
	g := gates{
		cpu:    at("cpu", "--max-cpu-percent", o.MaxCPU, p.MaxCPU),
		memory: at("memory", "--max-memory-percent", o.MaxMemory, p.MaxMemory),
		gpu:    at("gpu", "--max-gpu-percent", o.MaxGPU, p.MaxGPU),
	}
	b := said(o.MemoryBuffer, p.MemoryBuffer)
	if most := 100 * (1 - b); b > 0 && (g.memory == nil || most < g.memory.most) {
		if o.MemoryBuffer != nil {
			by = ""
		}
		g.memory = newGate("memory", "the "+show(most)+" that --memory-buffer "+number(b)+by+" leaves", most, cool)
	}
	if least := o.minFreeDisk(disk); least > 0 {
		g.disk = newFloor("disk", "--min-free-disk "+least.String(), least, cool)
	}
	return g
}

// minFreeDisk is how much of a disk of that size stays free.
func (o *Options) minFreeDisk(disk muster.Size) muster.Size {
	usual := DefaultMinFreeDisk
	if disk > 0 {
		usual = min(usual, disk/20)
	}
	return said(o.MinFreeDisk, usual)
}

// low reports whether little of a disk is left above what stays free: less than a tenth of the disk, and less than twice what stays free, or lowDisk where
// that is more.
func (o *Options) low(d *muster.DiskLoad) bool {
	least := o.minFreeDisk(d.Total)
	left := d.Free - least
	return left < d.Total/10 && left < max(2*least, lowDisk)
}

func number(f float64) string { return strconv.FormatFloat(f, 'g', -1, 64) }
