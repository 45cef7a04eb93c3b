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

// containerGroups returns what makes them, nil where there can be none. They are made when the first is asked
// for: most machines have no engine.
func (g *Groups) containerGroups() *groupSet {
	g.containersOnce.Do(func() {
		f := g.newContainerGroups(rootHierarchies(""), seesRootCgroup())
		g.mu.Lock()
		g.containers = f
		g.mu.Unlock()
		g.saveRecord()
	})
	return g.containers
}

// newContainerGroups makes them in trees, unless an engine would not mean the same group by a path as we do,
// or we may not make them.
func (g *Groups) newContainerGroups(hierarchies []hierarchy, sameRoot bool) *groupSet {
	switch {
	case !sameRoot:
		return nil
	case len(g.tasks.roots) == 1 && g.tasks.roots[0].unified:
		return g.tasks // one hierarchy has it all
	}
	f := &groupSet{total: g.tasks.total, mkdir: g.tasks.mkdir, everyHierarchy: true}
	for _, t := range hierarchies {
		p := taskRoot{hierarchy: t, parent: t.mount, dir: filepath.Join(t.mount, groupName(g.data))}
		if checkWritable(t.mount, "cgroup.procs") != nil || f.ensureRoot(&p) != nil {
			for i := range f.roots {
				_ = os.Remove(f.roots[i].dir) // those of processes are in use, or made again
			}
			return nil
		}
		f.roots = append(f.roots, p)
	}
	return f
}

// containerPath is the path of an attempt's groups below their mounts, "" for none.
func (g *groupSet) containerPath(list []run.Cgroup) string {
	if len(list) == 0 {
		return ""
	}
	return strings.TrimPrefix(list[0].Path, g.roots[0].mount)
}

// rootHierarchies finds every hierarchy that is mounted here, from its root, with that as the place of groups; none
// if one is seen in part only. root stands before all paths, as in mounted.
func rootHierarchies(root string) []hierarchy {
	mounts, err := readFile(root + "/proc/self/mountinfo")
	if err != nil {
		return nil
	}
	var found []hierarchy
	seen, partial := map[string]bool{}, map[string]bool{}
	for line := range strings.Lines(string(mounts)) {
		m, ok := parseMount(line)
		if !ok || seen[m.device] {
			continue
		}
		if m.root != "/" {
			partial[m.device] = true
			continue
		}
		seen[m.device] = true
		t := hierarchy{unified: m.unified, controllers: m.controllers, mount: root + m.path}
		t.self = t.mount
		found = append(found, t)
	}
	for device := range partial {
		if !seen[device] {
			return nil
		}
	}
	return found
}

// seesRootCgroup reports whether this process sees control groups from their root, and not from that of
// a container.
func seesRootCgroup() bool {
	// The first namespace has this number on every machine (PROC_CGROUP_INIT_INO).
	name, err := os.Readlink("/proc/self/ns/cgroup")
	return err == nil && name == "cgroup:[4026531835]"
}
