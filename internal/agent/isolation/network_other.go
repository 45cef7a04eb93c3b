//go:build !linux

package isolation

import (
	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
)

// errNetwork is of a task that would have the worker's network where it asks for less.
func errNetwork() error {
	return run.Failf(muster.StartFailed, "the task asks for a network of its own (network: none or allowlist), which only workers on Linux can give")
}
