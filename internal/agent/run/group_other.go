//go:build !unix

package run

import "os"

// killGroup kills the one process that it can name.
func killGroup(pid int) {
	if p, err := os.FindProcess(pid); err == nil {
		_ = p.Kill() // gone is the wanted state
	}
}
