//go:build !unix

package sealing

import "os/exec"

// setProcessGroup does nothing: the context ends only the command itself.
func setProcessGroup(*exec.Cmd) {}
