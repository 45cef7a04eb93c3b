//go:build !unix

package run

import "syscall"

// errDiskFull is how the system says that there is no space left
// (ERROR_DISK_FULL).
const errDiskFull = syscall.Errno(112)
