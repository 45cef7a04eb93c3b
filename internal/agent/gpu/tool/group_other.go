//go:build !unix

package tool

import (
	"os"
	"os/exec"
)

func setProcessGroup(*exec.Cmd) {}

func killGroup(p *os.Process) { _ = p.Kill() } // it may have ended
