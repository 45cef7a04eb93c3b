package cgroup

import (
	"path/filepath"
	"slices"
	"strings"
)

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
