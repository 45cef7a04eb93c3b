//go:build unix

package probe

import (
	"os/exec"
	"syscall"
)

// ownGroup makes a timeout kill the command and all that it started.
func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}
