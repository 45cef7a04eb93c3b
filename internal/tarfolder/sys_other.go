//go:build !unix

package tarfolder

import (
	"os"
	"syscall"
)

// errDiskFull is the error for no space left (ERROR_DISK_FULL).
const errDiskFull = syscall.Errno(112)

func chownDir(*os.Root, string, *Owner) error { return nil }

// OwnerOf returns nil: files have no numeric owner here.
func OwnerOf(os.FileInfo) *Owner { return nil }
