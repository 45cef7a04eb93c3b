package cgroup

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/muster-dev/muster/internal/agent/procfs"
	"github.com/muster-dev/muster/internal/agent/run"
)

// Containers have groups in a tree of their own: an engine puts a container into one path in all hierarchies, and creates missing
// groups. So an attempt in a container has a group in each hierarchy, even if it has no limits there, all with the same path.

// containerGroups returns the groups of containers, nil if there can be none. They are created at the first call: most
// machines have no engine.
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

// newContainerGroups creates the groups of containers. It returns nil if an engine would find another group at the same
// path, or if the worker may not create them.
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
				_ = os.Remove(f.roots[i].dir) // those that tasks use are not empty, or are created again
			}
			return nil
		}
		f.roots = append(f.roots, p)
	}
	return f
}

// containerPath is the path of an attempt's groups below their mounts; "" without groups.
func (g *groupSet) containerPath(list []run.Cgroup) string {
	if len(list) == 0 {
		return ""
	}
	return strings.TrimPrefix(list[0].Path, g.roots[0].mount)
}

// rootHierarchies returns every hierarchy, with its root as the parent of groups; none if one of them is visible in part only.
func rootHierarchies(root string) []hierarchy {
	mounts, err := procfs.ReadFile(root + "/proc/self/mountinfo")
	if err != nil {
		return nil
	}
	var found []hierarchy
	seen, partial := map[string]bool{}, map[string]bool{}
	for m := range procfs.Mounts(string(mounts)) {
		t, ok := newHierarchy(root, &m)
		if !ok || seen[m.Device] {
			continue
		}
		if m.Root != "/" {
			partial[m.Device] = true
			continue
		}
		seen[m.Device] = true
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

// seesRootCgroup reports whether this process sees control groups from their root, and not from the root of a container.
func seesRootCgroup() bool {
	// The first namespace has this number on all machines (PROC_CGROUP_INIT_INO).
	name, err := os.Readlink("/proc/self/ns/cgroup")
	return err == nil && name == "cgroup:[4026531835]"
}
