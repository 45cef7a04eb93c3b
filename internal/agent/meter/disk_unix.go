//go:build unix

package meter

import (
	"io/fs"
	"syscall"

	"github.com/muster-dev/muster"
)

// blocks is the space that a file takes on the disk, which is less than its size if it has holes.
func blocks(info fs.FileInfo) muster.Size {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return muster.Size(st.Blocks) * 512 // always in units of 512 bytes
	}
	return muster.Size(info.Size())
}

// openFolder are the flags with which a folder is opened: a task may replace it by a link or a pipe.
const openFolder = syscall.O_DIRECTORY | syscall.O_NOFOLLOW | syscall.O_NONBLOCK
