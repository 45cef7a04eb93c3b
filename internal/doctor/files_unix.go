//go:build unix

package doctor

import (
	"errors"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

func ownedByUser(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return !ok || int(st.Uid) == os.Geteuid()
}

// openToOthers reports whether other users may read or change a file.
func openToOthers(info fs.FileInfo) bool { return info.Mode().Perm()&0o077 != 0 }

// checkMkdir returns why this user cannot create a file in a directory.
func checkMkdir(dir string) error {
	if err := unix.Access(dir, unix.W_OK|unix.X_OK); err != nil {
		return &fs.PathError{Op: "access", Path: dir, Err: err}
	}
	return nil
}

// locked reports whether another process has locked a file, as a worker locks its data dir.
func locked(path string) (bool, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close() // releases the lock
	err = unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return true, nil
	}
	return false, err
}

// maxFiles returns the limit of open files of a process, 0 if unknown.
func maxFiles() uint64 {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil {
		return 0
	}
	return uint64(limit.Max) //nolint:unconvert // signed on FreeBSD
}
