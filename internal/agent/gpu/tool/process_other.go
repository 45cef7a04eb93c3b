//go:build !unix

package tool

import (
	"os"
	"os/exec"
)

// AccessDenied returns false: there are no device files here.
func AccessDenied(string) bool { return false }

// OwnerGroup returns -1: files have no groups here.
func OwnerGroup(string) int { return -1 }

func setProcessGroup(*exec.Cmd) {}

func killGroup(p *os.Process) { _ = p.Kill() } // it may have exited
