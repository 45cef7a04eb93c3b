package proctree

import "github.com/muster-dev/muster/internal/agent/run"

// KillTagged ends all processes that were started with mark in their environment: the
// tools that an earlier life of the worker used and was killed beside. It returns an
// error if some of them still live after 5 seconds.
func KillTagged(envTag string) error { return KillOrphan(run.Pid{BootID: BootID(), EnvTag: envTag}) }
