//go:build !unix

package python

import (
	"os"
	"os/exec"
)

// ownGroup does nothing: this system has no process groups.
func ownGroup(*exec.Cmd) {}

// killGroup kills only the process itself.
func killGroup(leader int) {
	if p, err := os.FindProcess(leader); err == nil {
		_ = p.Kill() // it may have exited
	}
}

// reclaim does nothing: builds run as the worker's user.
func reclaim(string) error { return nil }
