//go:build !linux

package proctree

import "github.com/muster-dev/muster/internal/agent/run"

// Alive returns false: here no process outlives the worker.
func Alive(run.Pid) bool { return false }

// Identify identifies a process by its PID only.
func Identify(pid int) run.Pid { return run.Pid{PID: pid} }
