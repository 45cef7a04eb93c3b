//go:build !unix

package proctree

import "os"

// killGroup kills the one process that it can name.
func killGroup(pid int) {
	if p, err := os.FindProcess(pid); err == nil {
		_ = p.Kill() // gone is the wanted state
	}
}

// freezeGroup does nothing: there is no such signal here.
func freezeGroup(int, bool) {}
