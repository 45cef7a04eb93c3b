//go:build unix

package process

import "syscall"

const openFlags = syscall.O_NOFOLLOW | syscall.O_NONBLOCK

// removeFolder removes an empty folder, and nothing else, in one call.
func removeFolder(path string) error { return syscall.Rmdir(path) }
