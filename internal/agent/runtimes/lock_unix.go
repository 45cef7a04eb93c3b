//go:build unix

package runtimes

import (
	"errors"
	"io/fs"
	"os"
	"syscall"

	"github.com/muster-dev/muster"
)

// lockFile takes the lock of an open file until it is closed, or returns errBusy.
func lockFile(f *os.File, alone bool) error {
	how := syscall.LOCK_SH
	if alone {
		how = syscall.LOCK_EX
	}
	err := syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return errBusy
	}
	return err
}

// onDisk tells a file from others, and says how much of the disk it takes and how many names it has. A folder has one.
func onDisk(info fs.FileInfo) (id fileID, size muster.Size, names uint64) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return id, muster.Size(info.Size()), 1
	}
	names = uint64(st.Nlink) //nolint:unconvert // other systems have other types
	if info.IsDir() {
		names = 1
	}
	return fileID{uint64(st.Dev), st.Ino}, muster.Size(st.Blocks * 512), names //nolint:unconvert // as above
}
