package usageseries

// downsampler holds a series of any length in a limited number of parts, each of which merges stride consecutive values. It keeps the
// last value apart.
type downsampler[V, P any] struct {
	part    func(V) P
	merge   func(a, b P) P                   // merges consecutive parts; it may reuse their memory
	tooMany func(parts []P, stride int) bool // reports whether parts must be merged in pairs

	stride     int
	parts      []P
	partial    P   // an incomplete part
	partialLen int // values in partial
	last       V
	n          int
}

// Len returns how many values were added.
func (d *downsampler[V, P]) Len() int { return d.n }

// Add adds the next value.
func (d *downsampler[V, P]) Add(v V) {
	if d.n++; d.n > 1 {
		d.push(d.part(d.last))
	}
	d.last = v
}

func (d *downsampler[V, P]) push(p P) {
	if d.partialLen++; d.partialLen > 1 {
		p = d.merge(d.partial, p)
	}
	d.partial = p
	if d.partialLen < d.stride {
		return
	}
	d.parts, d.partialLen = append(d.parts, p), 0
	for d.tooMany(d.parts, d.stride) {
		d.halve()
	}
}

// halve merges the parts in pairs.
func (d *downsampler[V, P]) halve() {
	if n := len(d.parts); n%2 == 1 {
		last := d.parts[n-1]
		if d.partialLen > 0 {
			last = d.merge(last, d.partial)
		}
		d.partial, d.partialLen = last, d.partialLen+d.stride
	}
	half := d.parts[:0]
	for i := 0; i+1 < len(d.parts); i += 2 {
		half = append(half, d.merge(d.parts[i], d.parts[i+1]))
	}
	clear(d.parts[len(half):])
	d.parts, d.stride = half, 2*d.stride
}
