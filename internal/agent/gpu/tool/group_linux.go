package tool

import (
	"os/exec"
	"syscall"
)

// setProcessGroup makes a tool the leader of a process group, and lets it end with the thread that started it.
func setProcessGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
