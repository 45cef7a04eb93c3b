//go:build unix && !linux

package run

import "syscall"

func killGroup(pgid int) {
	if pgid > 1 {
		_ = syscall.Kill(-pgid, syscall.SIGKILL) // ESRCH is the wanted state
	}
}
