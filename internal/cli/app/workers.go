package app

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/muster-dev/muster"
)

// WorkerStatus is the state of a worker in one word. One that is active and takes
// nothing new by its own decision is constrained; one that the server gives nothing
// because attempts fail there is avoided.
func WorkerStatus(w *muster.Worker) string {
	switch {
	case w.State != muster.WorkerActive:
		return string(w.State)
	case w.Constrained != "":
		return "constrained"
	case w.Health != nil && w.Health.Avoided != "":
		return "avoided"
	default:
		return string(w.State)
	}
}

// FormatDevices counts devices of the same kind, and those that are quarantined.
func FormatDevices(devices []muster.GPU) string {
	n := map[string]int{}
	quarantined := 0
	for _, d := range devices {
		n[d.Name]++
		if d.Quarantined != "" {
			quarantined++
		}
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(n)) {
		parts = append(parts, fmt.Sprintf("%d×%s", n[name], name))
	}
	if quarantined > 0 {
		parts = append(parts, fmt.Sprintf("%d quarantined", quarantined))
	}
	return strings.Join(parts, ", ")
}
