//go:build unix

package runtimes

import (
	"errors"
	"io/fs"
	"os"
	"syscall"

	"github.com/muster-dev/muster"
)

// lockFile locks an open file until it is closed, or returns errBusy.
func lockFile(f *os.File, exclusive bool) error {
	flag := syscall.LOCK_SH
	if exclusive {
		flag = syscall.LOCK_EX
	}
	err := syscall.Flock(int(f.Fd()), flag|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return errBusy
	}
	return err
}

// fileUsage returns the identity of a file, its size on the disk and its number of hard links, 1 for a folder.
func fileUsage(info fs.FileInfo) (id fileID, size muster.Size, links uint64) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return id, muster.Size(info.Size()), 1
	}
	links = uint64(st.Nlink) //nolint:unconvert // other systems have other types
	if info.IsDir() {
		links = 1
	}
	return fileID{uint64(st.Dev), st.Ino}, muster.Size(st.Blocks * 512), links //nolint:unconvert // as above
}
