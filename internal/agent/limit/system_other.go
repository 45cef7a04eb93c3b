//go:build !linux

package limit

import (
	"errors"

	"github.com/muster-dev/muster/internal/agent/run"
)

// reach is not checked: Spawn will say so.
func reach(*run.User, string) error { return nil }

// tryNetwork says why tasks cannot have a network of their own.
func tryNetwork() error { return errors.ErrUnsupported }

// Hide does nothing: other systems have no such thing.
func Hide() error { return nil }
