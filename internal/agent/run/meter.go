package run

import (
	"context"

	"github.com/muster-dev/muster"
)

// Meter measures attempts while they run, and watches over what no kernel
// enforces. All methods may be called at the same time.
type Meter interface {
	// Watch measures until the returned func is called, which tells what was
	// consumed, as far as it was measured.
	Watch(s *Subject, w MeterHandler) (stop func() muster.Usage)
}

// Subject is what is measured.
type Subject struct {
	Task      *Task
	Pid       Pid
	Isolation *IsolationSpec // nil for none
	Folders   Folders
}

// MeterHandler hears what a Meter finds out, on the Meter's goroutine.
type MeterHandler interface {
	// Sampled is called every few seconds.
	Sampled(s muster.Sample)
	// Warned has a sentence for the task's log: it is about to go over a limit.
	Warned(line string)
	// Exceeded is called once: the task is to be stopped.
	Exceeded(cause *Stopped)
}

// DeviceAllocator hands GPUs over and takes them back. All methods may be called at the
// same time.
type DeviceAllocator interface {
	// Environ returns the environment entries by which a task sees the devices of
	// its grant and no others; for a grant without devices those that show none.
	Environ(g *muster.Grant) []string
	// Acquire notes how the devices of a grant are before an attempt uses them.
	Acquire(ctx context.Context, a muster.AttemptID, g *muster.Grant)
	// Release takes the devices back after the end of an attempt whose processes had
	// mark: it ends strays of the attempt on them, and puts devices that are not as they were into
	// quarantine. It returns a TaskError if a device failed under the attempt.
	Release(ctx context.Context, a muster.AttemptID, g *muster.Grant, envTag string) error
}
