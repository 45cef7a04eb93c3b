//go:build !linux

package cgroup

import (
	"errors"
	"syscall"

	"github.com/muster-dev/muster/internal/agent/run"
)

const errInvalid = syscall.EINVAL

// Kill does nothing: there are no control groups here.
func Kill(*run.Cgroup, ...string) error { return nil }

// Freeze does nothing, either.
func Freeze(*run.Cgroup, bool) error { return nil }

// Members fails: there are no control groups here.
func Members(*run.Cgroup) ([]int, error) { return nil, errors.ErrUnsupported }

func delegated(string) bool { return false }
