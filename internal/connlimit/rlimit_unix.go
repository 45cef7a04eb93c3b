//go:build unix

package connlimit

import "syscall"

// Descriptors returns how many descriptors this process may open. Programs in Go raise the limit to
// the hard one when they start.
func Descriptors() uint64 {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return 1024
	}
	return uint64(limit.Cur) //nolint:unconvert // FreeBSD has it with a sign
}
