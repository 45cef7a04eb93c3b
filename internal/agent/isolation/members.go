package isolation

import (
	"github.com/muster-dev/muster/internal/agent/isolation/cgroup"
	"github.com/muster-dev/muster/internal/agent/run"
)

// HasOwnCgroup reports whether c has a control group that no other attempt shares: all processes of the
// attempt are in it.
func HasOwnCgroup(c *run.IsolationSpec) bool { return ownCgroup(c) != nil }

func ownCgroup(c *run.IsolationSpec) *run.Cgroup {
	if c == nil {
		return nil
	}
	for i := range c.Cgroups {
		if g := &c.Cgroups[i]; !g.Shared { // every hierarchy of version 1 has the same processes
			return g
		}
	}
	return nil
}

// Processes lists the processes in the control group of a task. It reports false if the task has
// no group of its own, or its members cannot be read.
func (l *Isolator) Processes(c *run.IsolationSpec) (pids []int, ok bool) {
	g := ownCgroup(c)
	if g == nil {
		return nil, false
	}
	pids, err := cgroup.Members(g)
	return pids, err == nil
}
