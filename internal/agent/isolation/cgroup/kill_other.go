//go:build !linux

package cgroup

import (
	"syscall"

	"github.com/muster-dev/muster/internal/agent/run"
)

const errInvalid = syscall.EINVAL

// Kill does nothing: there are no control groups here.
func Kill(*run.Cgroup, ...string) error { return nil }

// Freeze does nothing, either.
func Freeze(*run.Cgroup, bool) error { return nil }

func delegated(string) bool { return false }
