package cgroup

import (
	"path/filepath"
	"slices"
	"strings"
)

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

// WorkerGroup is the control group of a worker with all that is in it.
type WorkerGroup struct {
	Path      string
	Own       bool // of the worker with the given data dir
	Groups    int  // of attempts in it
	Processes int  // in all of them
}

// WorkerGroups lists the existing groups of workers, running or not: all that the worker with this data dir, which is absolute,
// has created, and those of others beside them. It changes nothing.
func WorkerGroups(data string) []WorkerGroup {
	return workerGroups(findHierarchies(""), data)
}

func workerGroups(hierarchies []hierarchy, data string) []WorkerGroup {
	own := groupName(data)
	paths := recordedGroups(data)
	for i := range hierarchies {
		parent, _, err := hierarchies[i].findParent()
		if err != nil {
			continue
		}
		siblings, _ := subgroups(parent) // none if it was removed
		for _, path := range siblings {
			if strings.HasPrefix(filepath.Base(path), groupPrefix) && !slices.Contains(paths, path) {
				paths = append(paths, path)
			}
		}
	}
	var list []WorkerGroup
	for _, path := range paths {
		l := WorkerGroup{Path: path, Own: strings.TrimSuffix(filepath.Base(path), workerSuffix) == own}
		l.count(path)
		l.Groups-- // itself
		list = append(list, l)
	}
	return list
}

func (l *WorkerGroup) count(path string) {
	pids, _ := readProcs(path) // it may have been removed
	l.Processes += len(pids)
	l.Groups++
	inner, _ := subgroups(path)
	for _, dir := range inner {
		l.count(dir)
	}
}

// Remove removes the group and the groups in it if they have no processes. No other process may use the worker's data dir
// meanwhile.
func (l *WorkerGroup) Remove() error { return ignoreNotExist(removeTree(l.Path)) }
