package shim

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// fileIDOf returns where a file is.
func fileIDOf(path string) (fileID, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return fileID{}, err
	}
	return fileID{Dev: st.Dev, Ino: st.Ino}, nil
}

// startedElsewhere reports whether a shim of a build that did not note its place was started for a folder of the same
// name elsewhere.
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

// dirHandle holds the folder of a shim open, wherever it is moved to, to notice that no worker can call at it any more.
type dirHandle struct {
	fd       int // descriptor
	socketID fileID
}

// openHandle opens the home's anchor.
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

// deleted reports whether the folder or its socket was deleted. A disk that cannot be read at the moment is none
// that was.
func (a *dirHandle) deleted() bool {
	now, err := a.statSocket()
	return errors.Is(err, unix.ENOENT) || err == nil && now != a.socketID
}

func (a *dirHandle) close() { _ = unix.Close(a.fd) }
