//go:build unix

package meter

import (
	"io/fs"
	"syscall"

	"github.com/muster-dev/muster"
)

// blocks is what a file takes of the disk, which is less than its size for one
// with holes.
func blocks(info fs.FileInfo) muster.Size {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return muster.Size(st.Blocks) * 512 // whatever the file system's own unit is
	}
	return muster.Size(info.Size())
}
