package cgroup

import (
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/muster-dev/muster/internal/agent/run"
)

// Members lists the processes in a group and in the groups within it. In version 1 it may list
// the one that is about to start the first process of the group.
func Members(g *run.Cgroup) ([]int, error) {
	pids, err := readProcs(g.Path)
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err := unix.Stat(g.Path, &st); err != nil {
		return nil, err
	}
	if st.Nlink <= 2 { // each group in it has a link to it
		return pids, nil
	}
	inner, err := os.ReadDir(g.Path)
	if err != nil {
		return nil, err
	}
	for _, e := range inner {
		if !e.IsDir() {
			continue
		}
		// A group that has just been removed has no processes.
		more, _ := Members(&run.Cgroup{Path: filepath.Join(g.Path, e.Name()), Unified: g.Unified})
		pids = append(pids, more...)
	}
	return pids, nil
}
