//go:build unix

package connlimit

import "syscall"

// Descriptors returns how many descriptors this process may open. The Go runtime raises the soft limit to
// the hard one at start.
func Descriptors() uint64 {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return 1024
	}
	return uint64(limit.Cur) //nolint:unconvert // it is signed on FreeBSD
}
