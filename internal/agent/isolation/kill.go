package isolation

import (
	"errors"

	"github.com/muster-dev/muster/internal/agent/isolation/cgroup"
	"github.com/muster-dev/muster/internal/agent/run"
)

// conmonCgroup is the group that Podman makes, beside a container's own, for the process that tells it how the container
// ended. Killed with it, the container would be taken to run for ever.
const conmonCgroup = "conmon"

// Kill ends every process in the groups of c, those that are being forked
// included, and returns when they are gone, or an error when they do not go. Without groups,
// or without c, it does nothing: others know the task's processes. The monitor of a container
// is left to end by itself.
func Kill(c *run.IsolationSpec) error {
	if c == nil {
		return nil
	}
	var except []string
	if c.CgroupParent != "" {
		except = []string{conmonCgroup}
	}
	var errs []error
	for i := range c.Cgroups {
		if g := &c.Cgroups[i]; !g.Shared {
			errs = append(errs, cgroup.Kill(g, except...))
		}
	}
	return errors.Join(errs...)
}

// Freeze stops every process in the groups of c, or lets them go on. It reports
// false if no group can do that here.
func Freeze(c *run.IsolationSpec, on bool) (bool, error) {
	if c == nil {
		return false, nil
	}
	for i := range c.Cgroups {
		if g := &c.Cgroups[i]; !g.Shared { // those of version 1 have the same processes in them: one will do
			return true, cgroup.Freeze(g, on)
		}
	}
	return false, nil
}
