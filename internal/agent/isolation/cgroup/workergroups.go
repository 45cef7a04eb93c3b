package cgroup

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// WorkerGroup is a worker's control group, with all that is in it.
type WorkerGroup struct {
	Path      string
	Own       bool // of the worker with the data dir that was asked for; else it is another one's
	Groups    int  // of attempts in it
	Processes int  // in all of them
}

// WorkerGroups lists the groups of workers that are there, of living ones as well. Those of the worker with
// this data dir, which is absolute, are found wherever it made them, others beside them. It
// changes nothing.
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
		entries, err := os.ReadDir(parent)
		if err != nil {
			continue
		}
		for _, e := range entries {
			if path := filepath.Join(parent, e.Name()); e.IsDir() && strings.HasPrefix(e.Name(), groupPrefix) && !slices.Contains(paths, path) {
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
	pids, _ := readProcs(path) // it may be gone by now
	l.Processes += len(pids)
	l.Groups++
	entries, _ := os.ReadDir(path)
	for _, e := range entries {
		if e.IsDir() {
			l.count(filepath.Join(path, e.Name()))
		}
	}
}

// Remove removes the groups if nothing is in them: the kernel keeps one that has
// processes. Nobody else may use the worker's data dir meanwhile.
func (l *WorkerGroup) Remove() error {
	if err := removeTree(l.Path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
