//go:build !linux

package isolation

import (
	"errors"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
)

// tryReach succeeds: Spawn would report an error.
func tryReach(*run.User, *run.View, string) error { return nil }

// canSwitchUsers fails: only Linux can.
func canSwitchUsers() error { return errors.New("this system cannot run each task as its own user") }

func idsMapped(uint32, uint32) bool { return false }

// tryNetwork fails: tasks cannot have a network of their own.
func tryNetwork() error { return errors.ErrUnsupported }

// trySeccomp fails: tasks may use all system calls.
func trySeccomp() error { return errors.ErrUnsupported }

// errNetwork refuses a task that would get the worker's network though it asks for less.
func errNetwork() error {
	return run.Failf(muster.StartFailed, "the task needs a network of its own (network: none or allowlist), which needs a worker on Linux")
}

// DisableDumpable does nothing: other systems have no such setting.
func DisableDumpable() error { return nil }

func (g *treeChowner) walk(dir string) error { return g.walkPaths(dir) }
