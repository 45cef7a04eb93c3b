//go:build !linux

package kin

import "github.com/muster-dev/muster/internal/agent/run"

// Lives says no: here nothing outlives the worker.
func Lives(run.Pid) bool { return false }

// Name names a process by its number alone.
func Name(pid int) run.Pid { return run.Pid{PID: pid} }
