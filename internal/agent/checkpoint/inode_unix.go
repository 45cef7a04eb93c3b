//go:build unix

package checkpoint

import (
	"io/fs"
	"syscall"
)

// openFlags prevent an open from blocking on a pipe or following a link.
const openFlags = syscall.O_NONBLOCK | syscall.O_NOFOLLOW

func inode(info fs.FileInfo) uint64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(st.Ino) //nolint:unconvert // the type differs between systems
	}
	return 0
}
