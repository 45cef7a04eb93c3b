//go:build unix

package container

import (
	"io/fs"
	"syscall"
)

// fileGID returns the group of a file, -1 if unknown.
func fileGID(info fs.FileInfo) int {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(st.Gid)
	}
	return -1
}
