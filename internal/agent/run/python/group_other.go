//go:build !unix

package python

import (
	"os"
)

// killGroup kills only the process itself.
func killGroup(leader int) {
	if p, err := os.FindProcess(leader); err == nil {
		_ = p.Kill() // it may have exited
	}
}

// reclaim does nothing: builds run as the worker's user.
func reclaim(string) error { return nil }
