//go:build unix

package run

import "syscall"

const (
	openFlags = syscall.O_NOFOLLOW | syscall.O_NONBLOCK
	noWait    = syscall.O_NONBLOCK
)
