//go:build unix

package run

import "syscall"

// errDiskFull is how the system says that there is no space left.
const errDiskFull = syscall.ENOSPC
