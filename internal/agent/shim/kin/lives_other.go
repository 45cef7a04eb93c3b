//go:build !linux

package kin

import "github.com/muster-dev/muster/internal/agent/run"

// Lives says no: here nothing outlives the worker.
func Lives(run.Pid) bool { return false }
