//go:build unix

package kinds

import (
	"io/fs"
	"os"
	"syscall"

	"github.com/muster-dev/muster"
)

// nonblocking opens a file that a task replaced by a pipe without waiting.
const nonblocking = syscall.O_NONBLOCK

// lockExclusively locks an open file until it is closed, and reports whether no other process had a lock on it.
func lockExclusively(f *os.File) bool {
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil
}

// diskUsage returns what a file takes on the disk.
func diskUsage(info fs.FileInfo) muster.Size {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return muster.Size(st.Blocks * 512)
	}
	return muster.Size(info.Size())
}
