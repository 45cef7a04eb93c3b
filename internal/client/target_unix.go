//go:build unix

package client

import (
	"io/fs"
	"os"
	"syscall"
)

const nonBlock = syscall.O_NONBLOCK

// isPrivate reports whether a file is regular, this user's, and has only one name.
func isPrivate(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && info.Mode().IsRegular() && st.Nlink == 1 && int(st.Uid) == os.Geteuid()
}
