package cgroup

import "slices"

// Describe finds out what a worker that is started here can use, and changes nothing: which versions
// are mounted (v1, v2, hybrid or none), which controllers it would have, and of others why not, a sentence
// for its owner by their names. One that is in neither is not mounted.
func Describe() (version string, controllers []string, why map[string]string) {
	trees := mounted("")
	why = map[string]string{}
	for i := range trees {
		_, can, err := trees[i].home()
		if err == nil {
			controllers = append(controllers, can...)
			continue
		}
		for _, c := range trees[i].controllers {
			why[c] = err.Error()
		}
	}
	return versions(trees), controllers, why
}

// versions names the versions of control groups that can be of use.
func versions(trees []tree) string {
	one := slices.ContainsFunc(trees, func(t tree) bool { return !t.unified })
	two := slices.ContainsFunc(trees, func(t tree) bool { return t.unified })
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
