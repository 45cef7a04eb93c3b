package process

import (
	"errors"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
)

// TestFullDiskIsAFleetFault checks that a program that fails while the worker's disk is full fails with disk_full, for any exit code or
// message, and that other failures keep their reason.
func TestFullDiskIsAFleetFault(t *testing.T) {
	for _, c := range []struct {
		base string // on a disk that is full, or not
		exit run.Exit
		want muster.Reason
	}{
		{"/proc", run.Exit{Code: 1}, muster.DiskFull}, // a file system without any space
		{"/proc", run.Exit{Code: 135, Signal: "SIGBUS"}, muster.DiskFull},
		{t.TempDir(), run.Exit{Code: 1}, muster.ExitCode},
		{t.TempDir(), run.Exit{Code: 135, Signal: "SIGBUS"}, muster.Signal},
	} {
		a := &Attempt{Task: &run.Task{Spec: &muster.TaskSpec{}}, base: c.base, exit: &c.exit}
		if f, ok := errors.AsType[*run.TaskError](a.exitFailure()); !ok || f.Reason != c.want {
			t.Errorf("%s on %s is %v, want %s", describeExit(&c.exit), c.base, a.exitFailure(), c.want)
		}
	}
}
