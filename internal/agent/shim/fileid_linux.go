package shim

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// fileIDOf returns the ID of a file.
func fileIDOf(path string) (fileID, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return fileID{}, err
	}
	return fileID{Dev: st.Dev, Ino: st.Ino}, nil
}

// startedElsewhere reports whether a shim of an old build, which did not record its directory, was started for another directory of the same
// name.
func (d *stateDir) startedElsewhere(pid int) bool {
	line, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	if err != nil {
		return false
	}
	for arg := range bytes.SplitSeq(line, []byte{0}) {
		other := string(arg)
		if other != d.path && filepath.Base(other) == filepath.Base(d.path) && filepath.Base(filepath.Dir(other)) == filepath.Base(shimsDir(d.data)) {
			return true
		}
	}
	return false
}

// dirHandle keeps a shim's directory open, even if it is moved, to notice when workers can no longer connect.
type dirHandle struct {
	fd       int // descriptor
	socketID fileID
}

// openHandle opens the directory.
func (d *stateDir) openHandle() (*dirHandle, error) {
	dir, err := unix.Open(d.path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("open", err)
	}
	a := &dirHandle{fd: dir}
	if a.socketID, err = a.statSocket(); err != nil {
		a.close()
		return nil, os.NewSyscallError("stat", err)
	}
	return a, nil
}

func (a *dirHandle) statSocket() (fileID, error) {
	var st unix.Stat_t
	if err := unix.Fstatat(a.fd, sockFile, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return fileID{}, err
	}
	return fileID{Dev: st.Dev, Ino: st.Ino}, nil
}

// deleted reports whether the directory or its socket was deleted. It is false if the disk is temporarily unreadable.
func (a *dirHandle) deleted() bool {
	now, err := a.statSocket()
	return errors.Is(err, unix.ENOENT) || err == nil && now != a.socketID
}

func (a *dirHandle) close() { _ = unix.Close(a.fd) }
