//go:build unix

package python

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

// fileUsage returns the identity of a file and its size on the disk.
func fileUsage(path string, info fs.FileInfo) (id any, size muster.Size) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return path, muster.Size(info.Size())
	}
	return [2]uint64{uint64(st.Dev), st.Ino}, muster.Size(st.Blocks * 512) //nolint:unconvert // other systems have other types
}

// killGroup kills the process group of a leader.
func killGroup(leader int) { _ = syscall.Kill(-leader, syscall.SIGKILL) } // ESRCH: it has exited

// reclaim takes a folder back from the user of builds and closes it to other users.
func reclaim(dir string) error {
	return errors.Join(os.Chown(dir, os.Getuid(), os.Getgid()), os.Chmod(dir, 0o700)) //nolint:gosec // a folder
}
