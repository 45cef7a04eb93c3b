package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/term"
)

// The exit statuses. Run and wait add the task's own.
const (
	exitFailed      = 1
	exitUsage       = 2
	exitNotFound    = 3
	exitNotAllowed  = 4
	exitConflict    = 5
	exitInvalidSpec = 6
	exitUnavailable = 7
	exitTimedOut    = 124
	exitFleet       = 125 // the fleet's fault, not the task's
	exitCancelled   = 130
)

// statusError ends the program with a status of its own. Without Err nothing is
// said.
type statusError struct {
	Status int
	Err    error
}

func (e *statusError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit status %d", e.Status)
	}
	return e.Err.Error()
}

func (e *statusError) Unwrap() error { return e.Err }

// report says what went wrong and returns the exit status.
func (a *app) report(err error) int {
	if err == nil {
		return 0
	}
	if s, ok := errors.AsType[*statusError](err); ok {
		if s.Err != nil {
			a.complain(s.Err)
		}
		return s.Status
	}
	if errors.Is(err, context.Canceled) {
		return exitCancelled // by a signal: the user knows
	}
	a.complain(err)
	return exitStatus(err)
}

func (a *app) complain(err error) {
	a.say("%s %v", a.err.Paint(term.Red, "muster:"), err)
	if e, ok := errors.AsType[*muster.Error](err); ok {
		for _, f := range e.Fields {
			a.say("  %s", f)
		}
	}
}

// exitStatus translates an error's code.
func exitStatus(err error) int {
	switch muster.CodeOf(err) {
	case muster.Invalid, muster.TooLarge:
		return exitUsage
	case muster.InvalidSpec:
		return exitInvalidSpec
	case muster.Unauthenticated, muster.Forbidden:
		return exitNotAllowed
	case muster.NotFound:
		return exitNotFound
	case muster.Conflict:
		return exitConflict
	case muster.Unavailable, muster.StorageFull:
		return exitUnavailable
	case muster.Internal:
		return exitFailed
	}
	return exitFailed
}

// taskStatus is the exit status of run and wait for a task that has ended.
func taskStatus(t *muster.Task) int {
	switch t.State {
	case muster.Succeeded:
		return 0
	case muster.TimedOut:
		return exitTimedOut
	case muster.Cancelled:
		return exitCancelled
	case muster.Failed, muster.Skipped:
	case muster.Waiting, muster.Queued, muster.Assigned, muster.Running, muster.Cancelling:
	}
	if t.Reason.FleetFault() || t.Reason == muster.CrashLimit {
		return exitFleet
	}
	if t.ExitCode != nil && *t.ExitCode > 0 && *t.ExitCode < 256 {
		return *t.ExitCode
	}
	return exitFailed
}
