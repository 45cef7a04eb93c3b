//go:build !unix

package python

import (
	"os"
	"os/exec"
)

// ownGroup leaves the command as it is: here only it itself is killed.
func ownGroup(*exec.Cmd) {}

// killGroup kills a process alone.
func killGroup(leader int) {
	if p, err := os.FindProcess(leader); err == nil {
		_ = p.Kill() // it may have ended
	}
}

// reclaim does nothing: builds are of the worker's own user.
func reclaim(string) error { return nil }
