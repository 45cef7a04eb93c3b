// Package usageseries adds up the samples of an attempt to its usage, and downsamples
// long series.
package usageseries

import (
	"time"

	"github.com/muster-dev/muster"
)

// MaxSpan is the longest time that one sample covers. A longer one is a gap without
// a worker, and counts as MaxSpan.
const MaxSpan = 65 * time.Second

// Accumulator adds up a series.
type Accumulator struct {
	Shared bool // the devices have other users: only the attempt's part of their power counts

	n                       int
	cpu, memory, gpu, watts mean
	read, written, in, out  float64 // bytes
	peaks                   Peaks
}

// mean is the average of a value over the time in which it was known.
type mean struct{ sum, seconds float64 }

func (m *mean) add(v, seconds float64) {
	m.sum += v * seconds
	m.seconds += seconds
}

// value returns the average, 0 if it is unknown.
func (m *mean) value() float64 {
	if m.seconds == 0 {
		return 0
	}
	return m.sum / m.seconds
}

// Peaks are the highest values of a series.
type Peaks struct {
	cpu                     float64
	memory, disk, ownMemory muster.Size
	pids                    int
	gpu, temperature        float64
}

// Len returns how many samples were added.
func (t *Accumulator) Len() int { return t.n }

// AddSince adds a sample for the time since a time, up to MaxSpan.
func (t *Accumulator) AddSince(since time.Time, s *muster.Sample) {
	t.Add(s, min(MaxSpan, max(0, s.At.Std().Sub(since))))
}

// Add adds a sample for the span before it.
func (t *Accumulator) Add(s *muster.Sample, span time.Duration) {
	t.n++
	t.peaks.Observe(s)
	sec := span.Seconds()
	if s.CPU != nil {
		t.cpu.add(*s.CPU, sec)
	}
	if s.Memory != nil {
		t.memory.add(float64(*s.Memory), sec)
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
		t.gpu.add(busy/float64(known), sec)
	}
	if watts, ok := Power(s, t.Shared); ok {
		t.watts.add(watts, sec)
	}
}

// Power returns the attempt's part of its devices' power in watts, and false if it is
// unknown. On shared devices it is proportional to the attempt's part of the memory in use.
func Power(s *muster.Sample, shared bool) (watts float64, ok bool) {
	for i := range s.GPUs {
		g := &s.GPUs[i]
		switch {
		case g.Power == nil || shared && (g.OwnMemory == nil || g.Memory == nil):
			continue
		case shared:
			watts += *g.Power * float64(*g.OwnMemory) / float64(max(1, *g.Memory, *g.OwnMemory))
		default:
			watts += *g.Power
		}
		ok = true
	}
	return watts, ok
}

// MergePeaks raises the peaks to those seen between two samples.
func (t *Accumulator) MergePeaks(q *Peaks) { t.peaks.merge(q) }

// MergePeaksOf raises the peaks to those of another Accumulator.
func (t *Accumulator) MergePeaksOf(other *Accumulator) { t.peaks.merge(&other.peaks) }

// Usage returns averages, peaks, totals and energy, without times and cost.
func (t *Accumulator) Usage() muster.Usage {
	p := &t.peaks
	return muster.Usage{
		CPUPeak: p.cpu, MemoryPeak: p.memory, DiskPeak: p.disk, PIDsPeak: p.pids, VRAMPeak: p.ownMemory, GPUPeak: p.gpu, GPUTempPeak: p.temperature,
		ReadBytes: muster.Size(t.read), WriteBytes: muster.Size(t.written), NetIn: muster.Size(t.in), NetOut: muster.Size(t.out),
		CPUAvg: t.cpu.value(), MemoryAvg: muster.Size(t.memory.value()), GPUAvg: t.gpu.value(), PowerAvg: t.watts.value(), EnergyWh: t.watts.sum / 3600,
	}
}

// Observe raises the peaks to those of a sample.
func (p *Peaks) Observe(s *muster.Sample) {
	q := Peaks{pids: s.PIDs, cpu: value(s.CPU), memory: value(s.Memory), disk: value(s.Disk)}
	for i := range s.GPUs {
		g := &s.GPUs[i]
		q.ownMemory += value(g.OwnMemory)
		q.gpu = max(q.gpu, value(g.Utilization))
		q.temperature = max(q.temperature, value(g.Temperature))
	}
	p.merge(&q)
}

func (p *Peaks) merge(q *Peaks) {
	p.cpu, p.memory, p.disk, p.ownMemory = max(p.cpu, q.cpu), max(p.memory, q.memory), max(p.disk, q.disk), max(p.ownMemory, q.ownMemory)
	p.pids, p.gpu, p.temperature = max(p.pids, q.pids), max(p.gpu, q.gpu), max(p.temperature, q.temperature)
}

// value returns what p points to, or 0.
func value[T float64 | muster.Size](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}
