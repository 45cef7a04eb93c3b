//go:build unix && !linux

package tool

import (
	"os/exec"
	"syscall"
)

// setProcessGroup makes a tool the leader of a process group. If the worker is killed, the tool ends at its next output, whose pipe is
// closed.
func setProcessGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
