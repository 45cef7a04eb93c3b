package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/term"
	"github.com/muster-dev/muster/internal/lazyregexp"
)

// The exit statuses. The commands run and wait also return a task's exit code. ExitCodes describes all of them.
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

// ExitCodes returns what the exit statuses mean.
func ExitCodes() []HelpSection {
	row := func(status int, usage string) HelpRow { return HelpRow{strconv.Itoa(status), usage} }
	return []HelpSection{
		{"All commands", []HelpRow{
			row(0, "Success"),
			row(ExitFailed, "Failure, such as an error of the server or a finding of muster doctor"),
			row(ExitUsage, "Wrong option, argument or request"),
			row(ExitNotFound, "A job, task, worker, key or context does not exist"),
			row(ExitNotAllowed, "The API key is missing, unknown, expired, or does not permit this"),
			row(ExitConflict, "The state does not permit this: a job has ended, a name or port is in use"),
			row(ExitInvalidSpec, "The job spec is invalid"),
			row(ExitUnavailable, "The server is unreachable, or did not answer in time"),
			row(ExitCancelled, "Interrupted by Ctrl-C or SIGTERM"),
		}},
		{"Commands that wait for jobs (run, submit --follow, wait)", []HelpRow{
			row(0, "All tasks succeeded"),
			{"1-255", "The task's own exit code, 128 and the number of the signal that ended it, or 1 if it failed without one"},
			row(ExitTimedOut, "The task timed out"),
			row(ExitFleetFault, "The fleet failed, not the task: its worker was lost, a download failed (muster help states)"),
			{"126, 127", "The command could not be executed, or was not found"},
			row(ExitCancelled, "The task was cancelled"),
		}},
	}
}

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

// addresses are URLs in a message.
var addresses = lazyregexp.New(`[a-zA-Z][a-zA-Z0-9+.-]*://[^\s"'` + "`" + `]+`)

// PrintError prints an error and its fields, except for those in the message. URLs in it are printed without user and password.
func (a *App) PrintError(err error) {
	a.Messagef("%s %s", a.Err.Paint(term.Red, "muster:"), addresses.Get().ReplaceAllStringFunc(err.Error(), muster.HideCredentials))
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
