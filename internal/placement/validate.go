package placement

import (
	"math"
	"slices"

	"github.com/muster-dev/muster"
)

// Validate returns an Invalid error for a worker whose description is not usable.
func Validate(w *muster.Worker) error {
	r := &w.Resources
	switch {
	case w.ID == "":
		return muster.Errorf(muster.Invalid, "a worker without an id cannot join")
	case math.IsNaN(r.CPUs) || r.CPUs < 0 || r.CPUs > 1<<20 || r.Memory < 0 || r.Disk < 0 || r.Slots < 0 || r.MaxTasks < 0:
		return muster.Errorf(muster.Invalid, "worker %s offers negative or absurd resources", w.ID)
	case math.IsNaN(w.Price) || w.Price < 0:
		return muster.Errorf(muster.Invalid, "worker %s has the price %g: it must be 0 or more", w.ID, w.Price)
	}
	for i, g := range r.GPUs {
		if g.UUID == "" || g.Memory < 0 || slices.ContainsFunc(r.GPUs[:i], func(o muster.GPU) bool { return o.UUID == g.UUID }) {
			return muster.Errorf(muster.Invalid, "worker %s: GPU %d has a duplicate or missing UUID, or negative memory", w.ID, g.Index)
		}
	}
	return nil
}
