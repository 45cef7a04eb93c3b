package usageseries

import "github.com/muster-dev/muster"

// SampleSeries holds a series of any length in a limited number of points. Beyond that, a point
// stands for several consecutive samples: it has the time of the last one and the maximum of each
// value, so that no peak is lost. The last sample is always exact.
type SampleSeries struct {
	maxPoints  int
	stride     int // samples in one point
	points     []muster.Sample
	partial    muster.Sample // an incomplete point
	partialLen int           // samples in partial
	last       muster.Sample
	n          int // samples
}

// NewSampleSeries makes a SampleSeries of at most maxPoints, which must be 4 or more.
func NewSampleSeries(maxPoints int) *SampleSeries {
	return &SampleSeries{maxPoints: maxPoints, stride: 1}
}

// Len returns how many samples were added.
func (t *SampleSeries) Len() int { return t.n }

// Add adds the next sample.
func (t *SampleSeries) Add(s muster.Sample) {
	if t.n++; t.n > 1 {
		t.push(t.last)
	}
	t.last = s
}

// push adds a sample to the incomplete point.
func (t *SampleSeries) push(s muster.Sample) {
	if t.partialLen++; t.partialLen == 1 {
		t.partial = s
	} else {
		t.partial = maxSample(t.partial, s)
	}
	if t.partialLen < t.stride {
		return
	}
	t.points, t.partialLen = append(t.points, t.partial), 0
	limit := t.maxPoints - 1 // one is for the last sample
	if t.stride > 1 {
		limit-- // and one for the incomplete point
	}
	if len(t.points) <= limit {
		return
	}
	half := t.points[:0]
	for i := 0; i+1 < len(t.points); i += 2 {
		half = append(half, maxSample(t.points[i], t.points[i+1]))
	}
	if len(t.points)%2 == 1 {
		t.partial, t.partialLen = t.points[len(t.points)-1], t.stride
	}
	t.points, t.stride = half, 2*t.stride
}

// Points returns the series, never nil. The samples share pointers with it and must not be changed.
func (t *SampleSeries) Points() []muster.Sample {
	points := make([]muster.Sample, len(t.points), len(t.points)+2)
	copy(points, t.points)
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
