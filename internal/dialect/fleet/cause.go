package fleet

import (
	"errors"

	"github.com/muster-dev/muster"
)

// Why a task is over, in the chain of Task.Why and of what Fleet.Late returns.
var (
	ErrReported  = errors.New("its final report was taken")
	ErrCancelled = errors.New("it was cancelled")
	ErrTimedOut  = errors.New("it ran for longer than it may")
	ErrAbandoned = errors.New("it was given up, because its worker was away for too long")
	ErrReturned  = errors.New("it was handed back")
)

// causes are the names of the Err… on disk.
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

// doneError says that a task is over.
func doneError(task string, cause error) error {
	return muster.Errorf(muster.Conflict, "task %s is over: %w", task, cause)
}
