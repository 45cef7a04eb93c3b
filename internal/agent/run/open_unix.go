//go:build unix

package run

import "syscall"

const (
	noFollowFlags = syscall.O_NOFOLLOW | syscall.O_NONBLOCK
	nonBlock      = syscall.O_NONBLOCK
)
