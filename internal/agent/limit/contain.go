package limit

import (
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
)

// Containers have groups of their own tree: an engine puts a container into one path of all
// hierarchies, and makes what is missing of it. So an attempt that runs in one has a group in each
// hierarchy, all of one path, those included that are of no use to us.

// vessels returns what makes them, nil where there can be none. They are made when the first is asked
// for: most machines have no engine.
func (l *Limits) vessels() *groups {
	l.seek.Do(func() {
		g := l.newVessels(roots(""), sameRoot())
		l.mu.Lock()
		l.contains = g
		l.mu.Unlock()
		if err := l.remember(); err != nil {
			l.cfg.Log.Warn("control groups may stay behind if the worker is killed", slog.Any("error", err))
		}
	})
	return l.contains
}

// newVessels makes them in trees, unless an engine would not mean the same group by a path as we do,
// or we may not make them.
func (l *Limits) newVessels(trees []tree, same bool) *groups {
	switch {
	case !same:
		return nil
	case len(l.groups.places) == 1 && l.groups.places[0].unified:
		return l.groups // one hierarchy has it all
	}
	g := &groups{all: l.all, mkdir: l.groups.mkdir, each: true}
	for _, t := range trees {
		p := place{tree: t, parent: t.mount, dir: filepath.Join(t.mount, groupName(l.cfg.Data))}
		if mayWrite(t.mount, "cgroup.procs") != nil || g.prepare(&p) != nil {
			for i := range g.places {
				_ = os.Remove(g.places[i].dir) // those of processes are in use, or made again
			}
			return nil
		}
		g.places = append(g.places, p)
	}
	return g
}

// below is the path of an attempt's groups below their mounts, "" for none.
func (g *groups) below(list []run.Cgroup) string {
	if len(list) == 0 {
		return ""
	}
	return strings.TrimPrefix(list[0].Path, g.places[0].mount)
}

// Contain makes the control groups of an attempt that runs in a container. What the task was granted
// is its engine's to limit, too, but for the disk.
func (l *Limits) Contain(t *run.Task) (*run.Confine, error) {
	c := &run.Confine{WatchDisk: t.Grant.Disk}
	if t.Grant.PIDs == 0 {
		c.WatchPIDs = l.cfg.PIDs
	}
	g := l.vessels()
	if g == nil {
		return c, nil
	}
	list, _, err := g.make(attemptName(t.Attempt), need{cpus: t.Grant.CPUs, memory: t.Grant.Memory, pids: l.mostPIDs(t), swap: l.cfg.Swap})
	if err != nil {
		return nil, run.Failf(muster.WorkerInternal, "%v", err) // see hold
	}
	c.Cgroups, c.Parent = list, g.below(list)
	return c, nil
}

// mostPIDs is how many processes and threads an attempt may have.
func (l *Limits) mostPIDs(t *run.Task) int {
	if n := t.Grant.PIDs; n > 0 {
		return n
	}
	return l.cfg.PIDs
}

// attemptName is that of an attempt's groups.
func attemptName(a muster.AttemptID) string { return a.Task.String() + "-" + strconv.Itoa(a.N) }

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
