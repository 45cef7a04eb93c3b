package cgroup

import "slices"

// Describe returns what a worker that starts here could use, without a change: the mounted versions of control groups (v1, v2,
// hybrid or none), the usable controllers, and why other controllers are not usable. A controller in neither is not mounted.
func Describe() (version string, controllers []string, why map[string]string) {
	hierarchies := findHierarchies("")
	why = map[string]string{}
	for i := range hierarchies {
		_, usable, err := hierarchies[i].findParent()
		if err == nil {
			controllers = append(controllers, usable...)
			continue
		}
		for _, c := range hierarchies[i].controllers {
			why[c] = err.Error()
		}
	}
	return versionName(hierarchies), controllers, why
}

// versionName names the versions of control groups that are usable.
func versionName(hierarchies []hierarchy) string {
	one := slices.ContainsFunc(hierarchies, func(t hierarchy) bool { return !t.unified })
	two := slices.ContainsFunc(hierarchies, func(t hierarchy) bool { return t.unified })
	switch {
	case one && two:
		return "hybrid"
	case one:
		return "v1"
	case two:
		return "v2"
	default:
		return "none"
	}
}
