//go:build !linux

package cgroup

import (
	"errors"

	"github.com/muster-dev/muster/internal/agent/run"
)

// Members fails: there are no control groups here.
func Members(*run.Cgroup) ([]int, error) { return nil, errors.ErrUnsupported }
