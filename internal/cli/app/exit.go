package app

import (
	"cmp"
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
	return cmp.Or(exitStatuses[muster.CodeOf(err)], ExitFailed)
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

// exitStatuses are those of errors; others are ExitFailed.
var exitStatuses = map[muster.Code]int{
	muster.Invalid: ExitUsage, muster.TooLarge: ExitUsage, muster.InvalidSpec: ExitInvalidSpec,
	muster.Unauthenticated: ExitNotAllowed, muster.Forbidden: ExitNotAllowed, muster.NotFound: ExitNotFound, muster.Conflict: ExitConflict,
	muster.Unavailable: ExitUnavailable, muster.StorageFull: ExitUnavailable, muster.Undetermined: ExitUnavailable,
}
