//go:build !unix

package run

import "syscall"

// errDiskFull is the error for no space left (ERROR_DISK_FULL).
const errDiskFull = syscall.Errno(112)

const (
	noFollowFlags = 0
	nonBlock      = 0
)
