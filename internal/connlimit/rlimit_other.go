//go:build !unix

package connlimit

// Descriptors returns how many descriptors this process may open. These systems have no limit.
func Descriptors() uint64 { return 1 << 20 }
