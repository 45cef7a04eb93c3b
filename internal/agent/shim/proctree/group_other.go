//go:build !unix

package proctree

import "os"

// killGroup kills the process: this system has no groups.
func killGroup(pid int) {
	if p, err := os.FindProcess(pid); err == nil {
		_ = p.Kill() // an error means that it has exited
	}
}

// freezeGroup does nothing: this system has no such signal.
func freezeGroup(int, bool) {}
