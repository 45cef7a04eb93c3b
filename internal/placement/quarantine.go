package placement

import (
	"slices"
	"strconv"

	"github.com/muster-dev/muster"
)

// Quarantined returns the UUIDs of a worker's quarantined devices with these UUIDs or
// indexes, or of all if names is empty. An unknown device is a NotFound error; a device
// that is not quarantined, or none at all, is a Conflict.
func Quarantined(w *muster.Worker, names []string) ([]string, error) {
	gpus := w.Resources.GPUs
	var uuids []string
	if len(names) == 0 {
		for i := range gpus {
			if gpus[i].Quarantined != "" {
				uuids = append(uuids, gpus[i].UUID)
			}
		}
		if uuids == nil {
			return nil, muster.Errorf(muster.Conflict, "worker %s has no quarantined GPU", w.Name)
		}
		return uuids, nil
	}
	for _, name := range names {
		i := slices.IndexFunc(gpus, func(g muster.GPU) bool { return g.UUID == name })
		if i < 0 {
			i = slices.IndexFunc(gpus, func(g muster.GPU) bool { return strconv.Itoa(g.Index) == name })
		}
		switch {
		case i < 0:
			return nil, muster.Errorf(muster.NotFound, "worker %s has no GPU %q: name it by its UUID or its index", w.Name, name)
		case gpus[i].Quarantined == "":
			return nil, muster.Errorf(muster.Conflict, "GPU %s of worker %s is not quarantined", name, w.Name)
		case !slices.Contains(uuids, gpus[i].UUID):
			uuids = append(uuids, gpus[i].UUID)
		}
	}
	return uuids, nil
}
