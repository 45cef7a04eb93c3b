//go:build unix

package run

import "syscall"

// errDiskFull is the error for no space left.
const errDiskFull = syscall.ENOSPC

const (
	noFollowFlags = syscall.O_NOFOLLOW | syscall.O_NONBLOCK
	nonBlock      = syscall.O_NONBLOCK
)
