package shim

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// placeOf returns where a file is.
func placeOf(path string) (place, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return place{}, err
	}
	return place{Dev: st.Dev, Ino: st.Ino}, nil
}

// namesAnother reports whether a shim of a build that did not note its place was started for a folder of the same
// name elsewhere.
func (h *home) namesAnother(pid int) bool {
	line, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	if err != nil {
		return false
	}
	for arg := range bytes.SplitSeq(line, []byte{0}) {
		other := string(arg)
		if other != h.dir && filepath.Base(other) == filepath.Base(h.dir) && filepath.Base(filepath.Dir(other)) == filepath.Base(shims(h.data)) {
			return true
		}
	}
	return false
}

// anchor holds the folder of a shim open, wherever it is moved to, to notice that no worker can call at it any more.
type anchor struct {
	dir  int // descriptor
	sock place
}

// hold opens the home's anchor.
func (h *home) hold() (*anchor, error) {
	dir, err := unix.Open(h.dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("open", err)
	}
	a := &anchor{dir: dir}
	if a.sock, err = a.find(); err != nil {
		a.close()
		return nil, os.NewSyscallError("stat", err)
	}
	return a, nil
}

func (a *anchor) find() (place, error) {
	var st unix.Stat_t
	if err := unix.Fstatat(a.dir, sockFile, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return place{}, err
	}
	return place{Dev: st.Dev, Ino: st.Ino}, nil
}

// lost reports whether the folder or its socket was deleted. A disk that cannot be read at the moment is none
// that was.
func (a *anchor) lost() bool {
	now, err := a.find()
	return errors.Is(err, unix.ENOENT) || err == nil && now != a.sock
}

func (a *anchor) close() { _ = unix.Close(a.dir) }
