package dtf

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/dialect/fleet"
)

// Bounds of capabilities.
const (
	maxGPUs   = 64
	maxCores  = 4096
	maxGB     = 1 << 20
	maxTags   = 64
	gigabytes = 1 << 30 // DTF divides by 1024 three times
)

// computes lists the compute capabilities for which workers have tags. A worker has the tags up to its own capability.
var computes = []float64{5.0, 6.0, 7.0, 7.5, 8.0, 8.6, 8.9, 9.0, 10.0, 12.0}

// workerFacts converts capabilities, within bounds.
func (g *gateway) workerFacts(id, hostname string, c *capabilities, r *access) fleet.Facts {
	if c == nil {
		c = &capabilities{}
	}
	f := fleet.Facts{
		ID: id, Name: firstName(hostname, c.Hostname, id), Version: "dtf", Tags: workerTags(c), Key: r.id,
		Kinds: []string{kindForeign, taskHash}, Labels: map[string]string{labelHost: sanitizeName(firstName(hostname, c.Hostname, id)), labelWorker: id},
		Resources: toResources(id, c),
	}
	f.Resources.MaxTasks = g.settings.batch
	f.Resources.Slots = g.settings.batch
	if g.settings.simulated {
		f.Kinds = append(f.Kinds, taskBenchmark, taskTest, taskCustom)
	}
	f.Lacks = []string{muster.FeatureCancel}
	if m := c.Muster; m != nil {
		f.Version = sanitizeName("muster " + m.Version)
		if m.Cancel {
			f.Lacks = nil
		}
		for _, t := range m.Types {
			if isMapped(t) && !slices.Contains(f.Kinds, t) {
				f.Kinds = append(f.Kinds, t)
			}
		}
		if m.Tasks > 1 {
			f.Resources.MaxTasks = min(m.Tasks, 1000)
			f.Resources.Slots = f.Resources.MaxTasks
		}
	}
	return f
}

func firstName(names ...string) string {
	for _, n := range names {
		if n = strings.TrimSpace(n); n != "" {
			return sanitizeName(n)
		}
	}
	return "dtf-worker"
}

// sanitizeName returns a name of at most muster.MaxNameSize bytes without control characters.
func sanitizeName(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, ""))
	for len(s) > muster.MaxNameSize {
		s = strings.ToValidUTF8(s[:len(s)-1], "")
	}
	return s
}

// sanitizeTag returns a tag without spaces.
func sanitizeTag(s string) string { return sanitizeName(strings.Join(strings.Fields(s), "-")) }

func workerTags(c *capabilities) []string {
	var tags []string
	add := func(tag string) {
		if tag = sanitizeTag(strings.ToLower(tag)); tag != "" && !strings.HasPrefix(tag, "dialect:") && !slices.Contains(tags, tag) && len(tags) < maxTags {
			tags = append(tags, tag)
		}
	}
	for _, h := range c.Hardware {
		add(h)
	}
	if c.WebNN != nil && c.WebNN.Available {
		add("webnn")
	}
	if c.WebGPU != nil && c.WebGPU.Available {
		add("webgpu")
	}
	if c.GPU != nil {
		for _, v := range computes {
			if c.GPU.CUDACompute >= v {
				add(computeTag(v))
			}
		}
	}
	for _, t := range c.Tags {
		add(t)
	}
	return tags
}

func computeTag(v float64) string { return fmt.Sprintf("cuda-compute-%.1f", v) }

func gbToSize(gb float64) muster.Size {
	if !(gb > 0) {
		return 0
	}
	return muster.Size(math.Min(gb, maxGB) * gigabytes)
}

func toResources(id string, c *capabilities) muster.Resources {
	r := muster.Resources{CPUs: 1, Memory: 1 << 30, Disk: 1 << 40}
	if c.CPU != nil {
		if n := math.Max(c.CPU.Threads, c.CPU.Cores); n >= 1 {
			r.CPUs = math.Floor(math.Min(n, maxCores))
		}
	}
	if c.Memory != nil && c.Memory.TotalGB > 0 {
		r.Memory = gbToSize(c.Memory.TotalGB)
	}
	if c.GPU == nil {
		return r
	}
	vendor := "nvidia"
	if !slices.Contains(c.Hardware, "cuda") && slices.Contains(c.Hardware, "rocm") {
		vendor = "amd"
	}
	devices := c.GPU.Devices
	if len(devices) == 0 && c.GPU.Count > 0 { // equal devices
		for i := range min(c.GPU.Count, maxGPUs) {
			devices = append(devices, gpu{Index: i, Name: c.GPU.Name, MemoryGB: c.GPU.MemoryGB})
		}
	}
	for i, d := range devices[:min(len(devices), maxGPUs)] {
		r.GPUs = append(r.GPUs, muster.GPU{
			UUID: fmt.Sprintf("dtf-%s-%d", sanitizeTag(id), i), Index: i, Vendor: vendor, Name: firstName(d.Name, "GPU"), Memory: gbToSize(d.MemoryGB),
		})
	}
	return r
}

// toLoad converts metrics, nil if there are none or they are not plausible.
func toLoad(m *metrics, r *muster.Resources) *muster.Load {
	if m == nil || !(m.CPUPercent >= 0 && m.CPUPercent <= 100) || !(m.MemoryPercent >= 0 && m.MemoryPercent <= 100) {
		return nil
	}
	l := &muster.Load{CPU: m.CPUPercent / 100, Memory: muster.Size(m.MemoryPercent / 100 * float64(r.Memory))}
	for _, g := range m.GPU {
		if g.Index >= 0 && g.Index < len(r.GPUs) && g.MemoryAllocatedGB >= 0 {
			used := min(gbToSize(g.MemoryAllocatedGB), r.GPUs[g.Index].Memory)
			l.GPUs = append(l.GPUs, muster.GPULoad{UUID: r.GPUs[g.Index].UUID, Memory: &used})
		}
	}
	return l
}
