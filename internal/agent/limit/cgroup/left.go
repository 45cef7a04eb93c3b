package cgroup

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Left is a worker's control group, with all that is in it.
type Left struct {
	Path      string
	Own       bool // of the worker with the data dir that was asked for; else it is another one's
	Groups    int  // of attempts in it
	Processes int  // in all of them
}

// LeftBehind lists the groups of workers that are there, of living ones as well. Those of the worker with
// this data dir, which is absolute, are found wherever it made them, others beside them. It
// changes nothing.
func LeftBehind(data string) []Left {
	return leftBehind(mounted(""), data)
}

func leftBehind(trees []tree, data string) []Left {
	own := groupName(data)
	paths := recorded(data)
	for i := range trees {
		parent, _, err := trees[i].home()
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
	var list []Left
	for _, path := range paths {
		l := Left{Path: path, Own: strings.TrimSuffix(filepath.Base(path), ownSuffix) == own}
		l.count(path)
		l.Groups-- // itself
		list = append(list, l)
	}
	return list
}

func (l *Left) count(path string) {
	pids, _ := processes(path) // it may be gone by now
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
func (l *Left) Remove() error {
	if err := removeNow(l.Path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
