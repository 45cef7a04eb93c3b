//go:build unix

package sealing

import (
	"os/exec"
	"syscall"
)

// setProcessGroup makes a command the leader of a process group, which ends with its context.
func setProcessGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}
