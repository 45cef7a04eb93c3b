package limit

import "github.com/muster-dev/muster/internal/agent/run"

// Kill ends every process in the groups of c, those that are being forked
// included, and returns when they are gone, or an error when they do not go. Without groups,
// or without c, it does nothing: others know the task's processes.
func Kill(c *run.Confine) error { return kill(c) }

// Freeze stops every process in the groups of c, or lets them go on. It reports
// false if no group can do that here.
func Freeze(c *run.Confine, on bool) (bool, error) { return freeze(c, on) }
