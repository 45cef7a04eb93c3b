//go:build unix

package checkpoint

import (
	"io/fs"
	"syscall"
)

// openFlags keep the opening of what a task put there from blocking or following.
const openFlags = syscall.O_NONBLOCK | syscall.O_NOFOLLOW

func inode(info fs.FileInfo) uint64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(st.Ino) //nolint:unconvert // it has other types on other systems
	}
	return 0
}
