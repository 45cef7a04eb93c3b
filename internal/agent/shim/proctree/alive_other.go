//go:build !linux

package proctree

import "github.com/muster-dev/muster/internal/agent/run"

// Alive says no: here nothing outlives the worker.
func Alive(run.Pid) bool { return false }

// Identify names a process by its number alone.
func Identify(pid int) run.Pid { return run.Pid{PID: pid} }
