package run

import (
	"context"

	"github.com/muster-dev/muster"
)

// Meter measures attempts while they run, and watches the limits that the kernel does not enforce. Its methods may be called concurrently.
type Meter interface {
	// Watch measures until stop is called, which returns the usage, as far as it was measured.
	Watch(s *Subject, w MeterHandler) (stop func() muster.Usage)
}

// Subject is an attempt to measure.
type Subject struct {
	Task      *Task
	Pid       Pid
	Isolation *IsolationSpec // nil for none
	Folders   Folders
}

// MeterHandler receives the results of a Meter, on the Meter's goroutine.
type MeterHandler interface {
	// Sampled is called every few seconds.
	Sampled(s muster.Sample)
	// Warned has a line for the task's log: the task is about to exceed a limit.
	Warned(line string)
	// Exceeded is called once: the task must be stopped.
	Exceeded(cause *Stopped)
}

// DeviceAllocator gives GPUs to attempts and takes them back. Its methods may be called concurrently.
type DeviceAllocator interface {
	// Environ returns the environment entries that make the granted devices visible, and no others.
	Environ(g *muster.Grant) []string
	// Acquire records the state of the granted devices before an attempt uses them.
	Acquire(ctx context.Context, a muster.AttemptID, g *muster.Grant)
	// Release takes the devices back after the end of an attempt whose processes had envTag: it ends processes of the attempt that are
	// left on them, and quarantines devices that are not in their former state. It returns a TaskError if a device failed during the
	// attempt.
	Release(ctx context.Context, a muster.AttemptID, g *muster.Grant, envTag string) error
}
