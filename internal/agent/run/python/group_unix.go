//go:build unix

package python

import (
	"errors"
	"os"
	"syscall"
)

// killGroup kills the process group of a leader.
func killGroup(leader int) { _ = syscall.Kill(-leader, syscall.SIGKILL) } // ESRCH: it has exited

// reclaim takes a folder back from the user of builds and closes it to other users.
func reclaim(dir string) error {
	return errors.Join(os.Chown(dir, os.Getuid(), os.Getgid()), os.Chmod(dir, 0o700)) //nolint:gosec // a folder
}
