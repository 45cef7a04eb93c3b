//go:build !linux

package landlock

// ABI returns 0: Landlock is of Linux.
func ABI() int { return 0 }
