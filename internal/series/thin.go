package series

import "github.com/muster-dev/muster"

// Thin holds a series of any length in at most so many points. Where samples are
// left out, a point stands for several that follow each other: it has the time of their last, and
// the highest of each figure, so that no peak is lost. The last sample stays as it is.
type Thin struct {
	most   int
	stride int // samples in one point
	points []muster.Sample
	next   muster.Sample // a point that is not full
	in     int           // samples in next
	last   muster.Sample
	n      int // samples
}

// NewThin makes a Thin of at most so many points, which must be 4 or more.
func NewThin(most int) *Thin { return &Thin{most: most, stride: 1} }

// Len returns how many samples were added.
func (t *Thin) Len() int { return t.n }

// Add adds the next sample, and keeps it.
func (t *Thin) Add(s muster.Sample) {
	if t.n++; t.n > 1 {
		t.push(t.last)
	}
	t.last = s
}

// push adds a sample to the point that is not full.
func (t *Thin) push(s muster.Sample) {
	if t.in++; t.in == 1 {
		t.next = s
	} else {
		t.next = highest(t.next, s)
	}
	if t.in < t.stride {
		return
	}
	t.points, t.in = append(t.points, t.next), 0
	room := t.most - 1 // a place is the last sample's
	if t.stride > 1 {
		room-- // and one that of the point that is not full
	}
	if len(t.points) <= room {
		return
	}
	half := t.points[:0]
	for i := 0; i+1 < len(t.points); i += 2 {
		half = append(half, highest(t.points[i], t.points[i+1]))
	}
	if len(t.points)%2 == 1 {
		t.next, t.in = t.points[len(t.points)-1], t.stride
	}
	t.points, t.stride = half, 2*t.stride
}

// Points returns the series as it is held, never nil. It must not be changed.
func (t *Thin) Points() []muster.Sample {
	points := make([]muster.Sample, len(t.points), len(t.points)+2)
	copy(points, t.points)
	if t.in > 0 {
		points = append(points, t.next)
	}
	if t.n > 0 {
		points = append(points, t.last)
	}
	return points
}

// maxDevices bounds what a point holds, whatever a worker sends. No machine has as many.
const maxDevices = 64

// highest returns the highest of each figure of two samples, of which b is the
// later one. It shares what they point to.
func highest(a, b muster.Sample) muster.Sample {
	m := muster.Sample{
		At: b.At, CPU: higher(a.CPU, b.CPU), Memory: higher(a.Memory, b.Memory), Disk: higher(a.Disk, b.Disk),
		Read: higher(a.Read, b.Read), Write: higher(a.Write, b.Write), NetIn: higher(a.NetIn, b.NetIn), NetOut: higher(a.NetOut, b.NetOut),
		PIDs: max(a.PIDs, b.PIDs),
	}
	if len(a.GPUs)+len(b.GPUs) == 0 {
		return m
	}
	m.GPUs = make([]muster.GPUSample, 0, max(len(a.GPUs), len(b.GPUs)))
	m.GPUs = append(m.GPUs, b.GPUs...)
	for i := range a.GPUs {
		raise(&m, &a.GPUs[i])
	}
	return m
}

// raise raises the figures of one device.
func raise(m *muster.Sample, g *muster.GPUSample) {
	for i := range m.GPUs {
		h := &m.GPUs[i]
		if h.UUID != g.UUID {
			continue
		}
		h.Utilization, h.Memory, h.Temperature = higher(g.Utilization, h.Utilization), higher(g.Memory, h.Memory), higher(g.Temperature, h.Temperature)
		h.Power, h.Latency, h.Own = higher(g.Power, h.Power), higher(g.Latency, h.Latency), higher(g.Own, h.Own)
		return
	}
	if len(m.GPUs) < maxDevices {
		m.GPUs = append(m.GPUs, *g)
	}
}

func higher[T float64 | muster.Size](a, b *T) *T {
	if b == nil || a != nil && *a > *b {
		return a
	}
	return b
}
