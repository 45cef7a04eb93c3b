//go:build unix && !linux

package tool

import (
	"os"
	"os/exec"
	"syscall"
)

// setProcessGroup has a tool lead a process group of its own. If the worker is killed,
// the tool ends when it next prints: nobody reads it any more.
func setProcessGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

func killGroup(p *os.Process) {
	_ = syscall.Kill(-p.Pid, syscall.SIGKILL) // ESRCH is the wanted state
}
