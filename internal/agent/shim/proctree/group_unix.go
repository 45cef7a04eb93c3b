//go:build unix && !linux

package proctree

import "syscall"

func killGroup(pgid int) {
	if pgid > 1 {
		_ = syscall.Kill(-pgid, syscall.SIGKILL) // ESRCH: it has ended
	}
}

func freezeGroup(pgid int, on bool) {
	sig := syscall.SIGCONT
	if on {
		sig = syscall.SIGSTOP
	}
	if pgid > 1 {
		_ = syscall.Kill(-pgid, sig) // ESRCH: it has just ended
	}
}
