//go:build unix

package tool

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// AccessDenied reports whether a file exists and this user may not read and write it.
func AccessDenied(path string) bool {
	err := unix.Access(path, unix.R_OK|unix.W_OK)
	return errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) || errors.Is(err, unix.EROFS)
}

// OwnerGroup returns the ID of the group that owns a file, -1 if it is unknown.
func OwnerGroup(path string) int {
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil {
		return -1
	}
	return int(st.Gid)
}

func killGroup(p *os.Process) {
	_ = syscall.Kill(-p.Pid, syscall.SIGKILL) // it may have exited
}
