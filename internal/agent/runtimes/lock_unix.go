//go:build unix

package runtimes

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
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

// inode tells a file from others: names that are links to the same one have the same.
func inode(info fs.FileInfo) (id [2]uint64, blocks int64) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return id, info.Size()
	}
	return [2]uint64{uint64(st.Dev), st.Ino}, st.Blocks * 512 //nolint:unconvert // other systems have other types
}
