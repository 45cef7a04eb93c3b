//go:build !unix

package tool

import (
	"os"
	"os/exec"
)

func asGroup(*exec.Cmd) {}

func killGroup(p *os.Process) { _ = p.Kill() } // it may have ended
