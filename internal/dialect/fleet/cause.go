package fleet

import (
	"errors"

	"github.com/muster-dev/muster"
)

// Why a task is done, in the chain of the errors of Task.Err and Fleet.ReportLate.
var (
	ErrReported  = errors.New("its final report was accepted")
	ErrCancelled = errors.New("it was cancelled")
	ErrTimedOut  = errors.New("it timed out")
	ErrAbandoned = errors.New("its worker was unreachable for too long")
	ErrReturned  = errors.New("it was requeued")
)

// causes maps the names on disk to errors.
var causes = []struct { //nolint:gochecknoglobals // a constant table
	name string
	err  error
}{
	{"reported", ErrReported}, {"cancelled", ErrCancelled}, {"timed_out", ErrTimedOut}, {"given_up", ErrAbandoned}, {"returned", ErrReturned},
}

func parseCause(name string) error {
	for _, c := range causes {
		if c.name == name {
			return c.err
		}
	}
	return ErrAbandoned
}

func causeName(cause error) string {
	for _, c := range causes {
		if errors.Is(cause, c.err) {
			return c.name
		}
	}
	return ""
}

// doneError is the error for a task that is done.
func doneError(task string, cause error) error {
	return muster.Errorf(muster.Conflict, "task %s is done: %w", task, cause)
}
