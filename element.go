package muster

import (
	"math"
	"strconv"
	"strings"
)

// An element of a stage has a position, from 0 to Size()-1, and an index, the number
// that users see as ${index} and MUSTER_INDEX. In an array the index is the array's
// number, else it is the position. In a gang it is also the rank.

// HasElements reports whether the stage is an array, a matrix, a sweep or a gang. Its tasks
// have element names, even if there is only one.
func (t *TaskSpec) HasElements() bool {
	return t.Array != nil || t.Matrix != nil || t.Sweep != nil || t.Gang != nil
}

// Size returns the number of tasks of the stage, 1 for a plain one. Its cost does
// not depend on the array's size.
func (t *TaskSpec) Size() int {
	switch {
	case t.Array != nil:
		return int(t.Array.Len())
	case t.Matrix != nil:
		return int(min(t.Matrix.Len(), math.MaxInt))
	case t.Sweep != nil:
		return t.Sweep.Trials
	case t.Gang != nil:
		return t.Gang.Size
	default:
		return 1
	}
}

// Index returns the index of the element at position i.
func (t *TaskSpec) Index(i int) int {
	if t.Array != nil {
		return int(t.Array.At(int64(i)))
	}
	return i
}

// Position returns the position of the element with this index.
func (t *TaskSpec) Position(index int) (int, bool) {
	if t.Array != nil {
		i, ok := t.Array.Find(int64(index))
		return int(i), ok
	}
	return index, index >= 0 && index < t.Size()
}

// Element returns the name of the element at position i: "" for a plain task, "7" in an array
// or a gang, "lr=0.1,seed=2" in a matrix, "trial=3,lr=0.1" in a random search.
func (t *TaskSpec) Element(i int) string {
	switch {
	case t.Array != nil, t.Gang != nil:
		return strconv.Itoa(t.Index(i))
	case t.Matrix != nil, t.Sweep != nil:
		var b strings.Builder
		axes := t.Axes()
		for k, v := range t.Combination(i) {
			if k > 0 {
				b.WriteByte(',')
			}
			b.WriteString(axes[k])
			b.WriteByte('=')
			b.WriteString(v)
		}
		return b.String()
	default:
		return ""
	}
}

// Values returns the variables that the element at position i may refer to: "index",
// and "matrix.NAME" for each of Axes.
func (t *TaskSpec) Values(i int) map[string]string {
	values := map[string]string{"index": strconv.Itoa(t.Index(i))}
	axes := t.Axes()
	for k, v := range t.Combination(i) {
		values["matrix."+axes[k]] = v
	}
	return values
}
