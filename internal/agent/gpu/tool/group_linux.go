package tool

import (
	"os"
	"os/exec"
	"syscall"
)

// setProcessGroup has a tool lead a process group of its own, and end with the thread
// that started it.
func setProcessGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

func killGroup(p *os.Process) {
	_ = syscall.Kill(-p.Pid, syscall.SIGKILL) // ESRCH is the wanted state
}
