package history

import (
	"math"
	"slices"
)

type tier struct {
	step  int64 // seconds of a slot
	slots int64
	first int64 // index of its first slot among those of all tiers
}

const (
	tiers    = 3
	allSlots = 360 + 720 + 1008
)

// resolutions are 10 seconds for an hour, a minute for twelve hours, and ten minutes for a week. Each step is a multiple of the previous one.
var resolutions = [tiers]tier{{10, 360, 0}, {60, 720, 360}, {600, 1008, 360 + 720}}

// rings has the slots of several series in all tiers, each tier as a ring: the slot of a time is its number since 1970 modulo the length.
type rings[T float32 | uint16] struct {
	data  []T // by slot, then by series
	width int
}

func newRings[T float32 | uint16](width int, none T, data []T) rings[T] {
	for i := range data {
		data[i] = none
	}
	return rings[T]{data: data, width: width}
}

// workerData is how many numbers a worker's rings have.
const workerData = allSlots * len(workerSeries)

// slabAllocator allocates workers' rings in slabs: the size class of a single one would waste an eleventh.
type slabAllocator struct{ free [][]uint16 }

const ringsPerSlab = 32

func (s *slabAllocator) alloc() []uint16 {
	if len(s.free) == 0 {
		slab := make([]uint16, ringsPerSlab*workerData)
		for part := range slices.Chunk(slab, workerData) {
			s.free = append(s.free, part)
		}
	}
	last := len(s.free) - 1
	part := s.free[last]
	s.free = s.free[:last]
	return part
}

// slot returns the values of a slot, which must be less than the tier's length before the newest one.
func (r *rings[T]) slot(t *tier, slot int64) []T {
	i := int(t.first+slot%t.slots) * r.width
	return r.data[i : i+r.width]
}

// mean computes the mean of numbers that are not NaN.
type mean struct {
	sum float64
	n   int
}

func (m *mean) add(v float64) {
	if !math.IsNaN(v) {
		m.sum += v
		m.n++
	}
}

func (m *mean) value() float64 {
	if m.n == 0 {
		return noValue
	}
	return m.sum / float64(m.n)
}

// roundSix rounds to six significant digits, because numbers are sent as text.
func roundSix(v float64) float64 {
	if v == 0 || math.IsInf(v, 0) {
		return v
	}
	unit := math.Pow(10, math.Floor(math.Log10(math.Abs(v)))-5)
	if unit < 1 {
		return math.Round(v*math.Round(1/unit)) / math.Round(1/unit)
	}
	return math.Round(v/unit) * unit
}

// codec converts between values and stored numbers.
type codec[T float32 | uint16] struct {
	none   T
	encode func(float64) T
	decode func(T) float64
}

var (
	float32Codec = codec[float32]{float32(noValue), func(v float64) float32 { return float32(v) }, func(v float32) float64 { return float64(v) }}
	float16Codec = codec[uint16]{float16None, encodeFloat16, decodeFloat16}
)

// advance clears the slots after last up to slot, which have values from one ring length ago.
func (c *codec[T]) advance(r *rings[T], t *tier, last, slot int64) {
	for s := max(last+1, slot-t.slots+1); s <= slot; s++ {
		for i := range r.slot(t, s) {
			r.slot(t, s)[i] = c.none
		}
	}
}

// set sets a slot of the finest tier.
func (c *codec[T]) set(r *rings[T], slot int64, values []float64) {
	row := r.slot(&resolutions[0], slot)
	for i, v := range values {
		row[i] = c.encode(v)
	}
}

// downsample sets a slot of a coarser tier to the mean of the finer tier's slots in it, up to newest.
func (c *codec[T]) downsample(r *rings[T], fine, coarse *tier, slot, newest int64) {
	ratio := coarse.step / fine.step
	row := r.slot(coarse, slot)
	for i := range row {
		var m mean
		for s := max(slot*ratio, newest-fine.slots+1); s <= min(slot*ratio+ratio-1, newest); s++ {
			m.add(c.decode(r.slot(fine, s)[i]))
		}
		row[i] = c.encode(m.value())
	}
}

// read returns the means of a series in n steps of ratio slots from the slot first on. newest is the newest slot.
func (c *codec[T]) read(r *rings[T], t *tier, series int, first, ratio int64, n int, newest int64) []*float64 {
	list := make([]*float64, n)
	for i := range list {
		var m mean
		from := first + int64(i)*ratio
		for s := max(from, newest-t.slots+1); s < min(from+ratio, newest+1); s++ {
			m.add(c.decode(r.slot(t, s)[series]))
		}
		if m.n > 0 {
			v := roundSix(m.value())
			list[i] = &v
		}
	}
	return list
}
