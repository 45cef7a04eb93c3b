package meter

import (
	"time"

	"github.com/muster-dev/muster"
)

// sums add a series up.
type sums struct {
	samples                        int
	memory, read, written, in, out float64 // times seconds
	gpu, watts                     float64
	memoryFor, gpuFor, wattsFor    float64 // seconds for which it is known
	peaks                          peaks
}

// peaks are the highest values of a series.
type peaks struct {
	cpu               float64
	memory, disk, own muster.Size
	pids              int
	gpu, temperature  float64
}

// part tells what part of a device's power counts.
type part func(*muster.GPUSample) (float64, bool)

// sumUp adds up a series from its beginning.
func sumUp(started time.Time, series []muster.Sample, of part) *sums {
	var t sums
	for i := range series {
		at := series[i].At.Std()
		// A gap, while no worker was there, counts as if it had been measured for a
		// moment only.
		t.add(&series[i], min(seldom+often, max(0, at.Sub(started))), of)
		started = at
	}
	return &t
}

// add takes a sample up that stands for the span before it.
func (t *sums) add(s *muster.Sample, span time.Duration, of part) {
	t.samples++
	t.peaks.take(s)
	sec := span.Seconds()
	if s.Memory != nil {
		t.memory += float64(*s.Memory) * sec
		t.memoryFor += sec
	}
	t.read += value(s.Read) * sec
	t.written += value(s.Write) * sec
	t.in += value(s.NetIn) * sec
	t.out += value(s.NetOut) * sec
	var busy, watts float64
	known, powered := 0, false
	for i := range s.GPUs {
		g := &s.GPUs[i]
		if g.Utilization != nil {
			busy += *g.Utilization
			known++
		}
		if share, ok := of(g); ok && g.Power != nil {
			watts += *g.Power * share
			powered = true
		}
	}
	if known > 0 {
		t.gpu += busy / float64(known) * sec
		t.gpuFor += sec
	}
	if powered {
		t.watts += watts * sec
		t.wattsFor += sec
	}
}

// take raises the peaks to those of a sample.
func (p *peaks) take(s *muster.Sample) {
	q := peaks{pids: s.PIDs, cpu: value(s.CPU), memory: value(s.Memory), disk: value(s.Disk)}
	for i := range s.GPUs {
		g := &s.GPUs[i]
		q.own += value(g.Own)
		q.gpu = max(q.gpu, value(g.Utilization))
		q.temperature = max(q.temperature, value(g.Temperature))
	}
	p.raise(&q)
}

func (p *peaks) raise(q *peaks) {
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

func (t *sums) usage() muster.Usage {
	p := &t.peaks
	u := muster.Usage{
		CPUPeak: p.cpu, MemoryPeak: p.memory, DiskPeak: p.disk, PIDsPeak: p.pids, VRAMPeak: p.own, GPUPeak: p.gpu, GPUTempPeak: p.temperature,
		ReadBytes: muster.Size(t.read), WriteBytes: muster.Size(t.written), NetIn: muster.Size(t.in), NetOut: muster.Size(t.out),
		EnergyWh: t.watts / 3600,
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
