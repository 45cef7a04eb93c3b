package proctree

import "github.com/muster-dev/muster/internal/agent/run"

// KillTagged kills all processes that were started with envTag in their environment: tools of a previous worker process that was killed. It
// returns an error if some of them still run after 5 seconds.
func KillTagged(envTag string) error { return KillOrphan(run.Pid{BootID: BootID(), EnvTag: envTag}) }
