//go:build !linux

package isolation

import (
	"errors"

	"github.com/muster-dev/muster/internal/agent/run"
)

// tryReach is not checked: Spawn will say so.
func tryReach(*run.User, *run.View, string) error { return nil }

// canSwitchUsers says that users of tasks are of Linux.
func canSwitchUsers() error { return errors.New("this system cannot give each its own user") }

func idsMapped(uint32, uint32) bool { return false }

// tryNetwork says why tasks cannot have a network of their own.
func tryNetwork() error { return errors.ErrUnsupported }

// DisableDumpable does nothing: other systems have no such thing.
func DisableDumpable() error { return nil }
