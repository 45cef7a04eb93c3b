//go:build unix

package python

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
)

// ownGroup lets the command be killed with what it started.
func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}

// killGroup kills the process group of a leader.
func killGroup(leader int) { _ = syscall.Kill(-leader, syscall.SIGKILL) } // ESRCH is the wanted state

// reclaim makes a folder that was given to the user of builds the worker's own again, and closes it to others.
func reclaim(dir string) error {
	return errors.Join(os.Chown(dir, os.Getuid(), os.Getgid()), os.Chmod(dir, 0o700)) //nolint:gosec // a folder
}
