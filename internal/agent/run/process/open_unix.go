//go:build unix

package process

import "syscall"

const openFlags = syscall.O_NOFOLLOW | syscall.O_NONBLOCK
