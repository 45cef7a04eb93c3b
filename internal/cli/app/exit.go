package app

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/term"
)

// The exit statuses. The commands run and wait also return a task's exit code.
const (
	ExitFailed      = 1
	ExitUsage       = 2
	ExitNotFound    = 3
	ExitNotAllowed  = 4
	ExitConflict    = 5
	ExitInvalidSpec = 6
	ExitUnavailable = 7
	ExitTimedOut    = 124
	ExitFleetFault  = 125 // a failure of the fleet, not of the task
	ExitCancelled   = 130
)

// StatusError ends the program with an exit status. Without Err, no message is printed.
type StatusError struct {
	Status int
	Err    error
}

func (e *StatusError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit status %d", e.Status)
	}
	return e.Err.Error()
}

func (e *StatusError) Unwrap() error { return e.Err }

// reportError prints err and returns the exit status.
func (a *App) reportError(err error) int {
	if err == nil {
		return 0
	}
	if s, ok := errors.AsType[*StatusError](err); ok {
		if s.Err != nil {
			a.PrintError(s.Err)
		}
		return s.Status
	}
	if errors.Is(err, context.Canceled) {
		return ExitCancelled // by a signal
	}
	a.PrintError(err)
	return exitStatus(err)
}

// PrintError prints an error and its fields, except for those in the message.
func (a *App) PrintError(err error) {
	a.Messagef("%s %v", a.Err.Paint(term.Red, "muster:"), err)
	if e, ok := errors.AsType[*muster.Error](err); ok {
		for _, f := range e.Fields {
			if !strings.Contains(e.Message, f.Message) {
				a.Messagef("  %s", f)
			}
		}
	}
}

// exitStatus maps the code of an error.
func exitStatus(err error) int {
	switch muster.CodeOf(err) {
	case muster.Invalid, muster.TooLarge:
		return ExitUsage
	case muster.InvalidSpec:
		return ExitInvalidSpec
	case muster.Unauthenticated, muster.Forbidden:
		return ExitNotAllowed
	case muster.NotFound:
		return ExitNotFound
	case muster.Conflict:
		return ExitConflict
	case muster.Unavailable, muster.StorageFull, muster.Undetermined:
		return ExitUnavailable
	case muster.Internal:
		return ExitFailed
	}
	return ExitFailed
}
