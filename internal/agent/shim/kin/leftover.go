package kin

import "github.com/muster-dev/muster/internal/agent/run"

// KillMarked ends all processes that were started with mark in their environment: the
// tools that an earlier life of the worker used and was killed beside. It returns an
// error if some of them still live after 5 seconds.
func KillMarked(mark string) error { return KillLeftover(run.Pid{BootID: BootID(), Mark: mark}) }
