//go:build !linux

package landlock

// ABI returns 0: Landlock exists on Linux only.
func ABI() int { return 0 }
