//go:build unix

package run

import "syscall"

// errDiskFull is the error for no space left.
const errDiskFull = syscall.ENOSPC
