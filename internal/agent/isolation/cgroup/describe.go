package cgroup

import "slices"

// Describe finds out what a worker that is started here can use, and changes nothing: which versions
// are mounted (v1, v2, hybrid or none), which controllers it would have, and of others why not, a sentence
// for its owner by their names. One that is in neither is not mounted.
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

// versionName names the versions of control groups that can be of use.
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
