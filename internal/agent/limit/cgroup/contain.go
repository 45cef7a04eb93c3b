package cgroup

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/muster-dev/muster/internal/agent/run"
)

// Containers have groups of their own tree: an engine puts a container into one path of all
// hierarchies, and makes what is missing of it. So an attempt that runs in one has a group in each
// hierarchy, all of one path, those included that are of no use to us.

// vessels returns what makes them, nil where there can be none. They are made when the first is asked
// for: most machines have no engine.
func (g *Groups) vessels() *family {
	g.seek.Do(func() {
		f := g.newVessels(roots(""), sameRoot())
		g.mu.Lock()
		g.contains = f
		g.mu.Unlock()
		g.remember()
	})
	return g.contains
}

// newVessels makes them in trees, unless an engine would not mean the same group by a path as we do,
// or we may not make them.
func (g *Groups) newVessels(trees []tree, same bool) *family {
	switch {
	case !same:
		return nil
	case len(g.tasks.places) == 1 && g.tasks.places[0].unified:
		return g.tasks // one hierarchy has it all
	}
	f := &family{all: g.tasks.all, mkdir: g.tasks.mkdir, each: true}
	for _, t := range trees {
		p := place{tree: t, parent: t.mount, dir: filepath.Join(t.mount, groupName(g.data))}
		if mayWrite(t.mount, "cgroup.procs") != nil || f.prepare(&p) != nil {
			for i := range f.places {
				_ = os.Remove(f.places[i].dir) // those of processes are in use, or made again
			}
			return nil
		}
		f.places = append(f.places, p)
	}
	return f
}

// below is the path of an attempt's groups below their mounts, "" for none.
func (g *family) below(list []run.Cgroup) string {
	if len(list) == 0 {
		return ""
	}
	return strings.TrimPrefix(list[0].Path, g.places[0].mount)
}

// roots finds every hierarchy that is mounted here, from its root, with that as the place of groups; none
// if one is seen in part only. root stands before all paths, as in mounted.
func roots(root string) []tree {
	mounts, err := readFile(root + "/proc/self/mountinfo")
	if err != nil {
		return nil
	}
	var found []tree
	seen, part := map[string]bool{}, map[string]bool{}
	for line := range strings.Lines(string(mounts)) {
		m, ok := parseMount(line)
		if !ok || seen[m.device] {
			continue
		}
		if m.top != "/" {
			part[m.device] = true
			continue
		}
		seen[m.device] = true
		t := tree{unified: m.unified, controllers: m.controllers, mount: root + m.at}
		t.own = t.mount
		found = append(found, t)
	}
	for device := range part {
		if !seen[device] {
			return nil
		}
	}
	return found
}

// sameRoot reports whether this process sees control groups from their root, and not from that of
// a container.
func sameRoot() bool {
	// The first namespace has this number on every machine (PROC_CGROUP_INIT_INO).
	name, err := os.Readlink("/proc/self/ns/cgroup")
	return err == nil && name == "cgroup:[4026531835]"
}
