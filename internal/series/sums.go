package series

import (
	"time"

	"github.com/muster-dev/muster"
)

// MaxSpan is the longest time for which one sample stands. What is longer is a gap,
// while no worker was there, and counts as that long only.
const MaxSpan = 65 * time.Second

// Sums add a series up.
type Sums struct {
	Shared bool // the devices have other users too: of their power only the attempt's part counts

	n                                   int
	cpu, memory, read, written, in, out float64 // times seconds
	gpu, watts                          float64
	cpuFor, memoryFor, gpuFor, wattsFor float64 // seconds for which it is known
	peaks                               Peaks
}

// Peaks are the highest values of a series.
type Peaks struct {
	cpu               float64
	memory, disk, own muster.Size
	pids              int
	gpu, temperature  float64
}

// Len returns how many samples were added.
func (t *Sums) Len() int { return t.n }

// Follow adds a sample up that stands for the time since before, up to MaxSpan.
func (t *Sums) Follow(before time.Time, s *muster.Sample) {
	t.Add(s, min(MaxSpan, max(0, s.At.Std().Sub(before))))
}

// Add adds a sample up that stands for the span before it.
func (t *Sums) Add(s *muster.Sample, span time.Duration) {
	t.n++
	t.peaks.Take(s)
	sec := span.Seconds()
	if s.CPU != nil {
		t.cpu += *s.CPU * sec
		t.cpuFor += sec
	}
	if s.Memory != nil {
		t.memory += float64(*s.Memory) * sec
		t.memoryFor += sec
	}
	t.read += value(s.Read) * sec
	t.written += value(s.Write) * sec
	t.in += value(s.NetIn) * sec
	t.out += value(s.NetOut) * sec
	var busy float64
	known := 0
	for i := range s.GPUs {
		g := &s.GPUs[i]
		if g.Utilization != nil {
			busy += *g.Utilization
			known++
		}
	}
	if known > 0 {
		t.gpu += busy / float64(known) * sec
		t.gpuFor += sec
	}
	if watts, ok := Power(s, t.Shared); ok {
		t.watts += watts * sec
		t.wattsFor += sec
	}
}

// Power returns the attempt's part of its devices' power in watts, and false if that is
// unknown. Of shared devices it is the part that corresponds to the attempt's part of the memory in use.
func Power(s *muster.Sample, shared bool) (watts float64, ok bool) {
	for i := range s.GPUs {
		g := &s.GPUs[i]
		switch {
		case g.Power == nil || shared && (g.Own == nil || g.Memory == nil):
			continue
		case shared:
			watts += *g.Power * float64(*g.Own) / float64(max(1, *g.Memory, *g.Own))
		default:
			watts += *g.Power
		}
		ok = true
	}
	return watts, ok
}

// Raise raises the peaks to those that were seen between two samples.
func (t *Sums) Raise(q *Peaks) { t.peaks.raise(q) }

// RaiseBy raises the peaks to those of other sums.
func (t *Sums) RaiseBy(other *Sums) { t.peaks.raise(&other.peaks) }

// Usage returns what the series tells: averages, peaks, totals of rates, and
// energy. It does not tell times and cost.
func (t *Sums) Usage() muster.Usage {
	p := &t.peaks
	u := muster.Usage{
		CPUPeak: p.cpu, MemoryPeak: p.memory, DiskPeak: p.disk, PIDsPeak: p.pids, VRAMPeak: p.own, GPUPeak: p.gpu, GPUTempPeak: p.temperature,
		ReadBytes: muster.Size(t.read), WriteBytes: muster.Size(t.written), NetIn: muster.Size(t.in), NetOut: muster.Size(t.out),
		EnergyWh: t.watts / 3600,
	}
	if t.cpuFor > 0 {
		u.CPUAvg = t.cpu / t.cpuFor
	}
	if t.memoryFor > 0 {
		u.MemoryAvg = muster.Size(t.memory / t.memoryFor)
	}
	if t.gpuFor > 0 {
		u.GPUAvg = t.gpu / t.gpuFor
	}
	if t.wattsFor > 0 {
		u.PowerAvg = t.watts / t.wattsFor
	}
	return u
}

// Take raises the peaks to those of a sample.
func (p *Peaks) Take(s *muster.Sample) {
	q := Peaks{pids: s.PIDs, cpu: value(s.CPU), memory: value(s.Memory), disk: value(s.Disk)}
	for i := range s.GPUs {
		g := &s.GPUs[i]
		q.own += value(g.Own)
		q.gpu = max(q.gpu, value(g.Utilization))
		q.temperature = max(q.temperature, value(g.Temperature))
	}
	p.raise(&q)
}

func (p *Peaks) raise(q *Peaks) {
	p.cpu, p.memory, p.disk, p.own = max(p.cpu, q.cpu), max(p.memory, q.memory), max(p.disk, q.disk), max(p.own, q.own)
	p.pids, p.gpu, p.temperature = max(p.pids, q.pids), max(p.gpu, q.gpu), max(p.temperature, q.temperature)
}

// value is what p points to, 0 for what was not measured.
func value[T float64 | muster.Size](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}
