package usageseries

import "github.com/muster-dev/muster"

// SampleSeries holds a series of any length in a limited number of points. Beyond that, a point
// stands for several consecutive samples: it has the time of the last one and the maximum of each
// value, so that no peak is lost. The last sample is always exact.
type SampleSeries struct {
	downsampler[muster.Sample, muster.Sample]
}

// NewSampleSeries makes a SampleSeries of at most maxPoints, which must be 4 or more.
func NewSampleSeries(maxPoints int) *SampleSeries {
	part := func(s muster.Sample) muster.Sample { return s }
	tooMany := func(points []muster.Sample, stride int) bool {
		limit := maxPoints - 1 // one is for the last sample
		if stride > 1 {
			limit-- // and one for the incomplete point
		}
		return len(points) > limit
	}
	return &SampleSeries{downsampler[muster.Sample, muster.Sample]{part: part, merge: maxSample, tooMany: tooMany, stride: 1}}
}

// Points returns the series, never nil. The samples share pointers with it and must not be changed.
func (t *SampleSeries) Points() []muster.Sample {
	points := append([]muster.Sample{}, t.parts...)
	if t.partialLen > 0 {
		points = append(points, t.partial)
	}
	if t.n > 0 {
		points = append(points, t.last)
	}
	return points
}

// maxDevices limits the devices of a point, whatever a worker sends.
const maxDevices = 64

// maxSample returns the maximum of each value of two samples, where b is the later one. It
// shares their pointers.
func maxSample(a, b muster.Sample) muster.Sample {
	m := muster.Sample{
		At: b.At, CPU: maxPtr(a.CPU, b.CPU), Memory: maxPtr(a.Memory, b.Memory), Disk: maxPtr(a.Disk, b.Disk),
		Read: maxPtr(a.Read, b.Read), Write: maxPtr(a.Write, b.Write), NetIn: maxPtr(a.NetIn, b.NetIn), NetOut: maxPtr(a.NetOut, b.NetOut),
		PIDs: max(a.PIDs, b.PIDs),
	}
	if len(a.GPUs)+len(b.GPUs) == 0 {
		return m
	}
	m.GPUs = make([]muster.GPUSample, 0, max(len(a.GPUs), len(b.GPUs)))
	m.GPUs = append(m.GPUs, b.GPUs...)
	for i := range a.GPUs {
		mergeGPU(&m, &a.GPUs[i])
	}
	return m
}

// mergeGPU raises the values of one device.
func mergeGPU(m *muster.Sample, g *muster.GPUSample) {
	for i := range m.GPUs {
		h := &m.GPUs[i]
		if h.UUID != g.UUID {
			continue
		}
		h.Utilization, h.Memory, h.Temperature = maxPtr(g.Utilization, h.Utilization), maxPtr(g.Memory, h.Memory), maxPtr(g.Temperature, h.Temperature)
		h.Power, h.Latency, h.OwnMemory = maxPtr(g.Power, h.Power), maxPtr(g.Latency, h.Latency), maxPtr(g.OwnMemory, h.OwnMemory)
		return
	}
	if len(m.GPUs) < maxDevices {
		m.GPUs = append(m.GPUs, *g)
	}
}

func maxPtr[T float64 | muster.Size](a, b *T) *T {
	if b == nil || a != nil && *a > *b {
		return a
	}
	return b
}
