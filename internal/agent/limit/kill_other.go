//go:build !linux

package limit

import (
	"syscall"

	"github.com/muster-dev/muster/internal/agent/run"
)

const errInvalid = syscall.EINVAL

func kill(*run.Confine) error { return nil }

func freeze(*run.Confine, bool) (bool, error) { return false, nil }

// empty does nothing: there are no control groups here.
func empty(*run.Cgroup) error { return nil }

func delegated(string) bool { return false }
