//go:build !linux

package limit

import (
	"errors"

	"github.com/muster-dev/muster/internal/agent/run"
)

// reach is not checked: Spawn will say so.
func reach(*run.User, *run.View, string) error { return nil }

// canBecome says that users of tasks are of Linux.
func canBecome() error { return errors.New("this system cannot give each its own user") }

func mapped(uint32, uint32) bool { return false }

// tryNetwork says why tasks cannot have a network of their own.
func tryNetwork() error { return errors.ErrUnsupported }

// Hide does nothing: other systems have no such thing.
func Hide() error { return nil }
