//go:build unix

package tool

import (
	"errors"

	"golang.org/x/sys/unix"
)

// AccessDenied says whether a file is there and this user may not read and write it.
func AccessDenied(path string) bool {
	err := unix.Access(path, unix.R_OK|unix.W_OK)
	return errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) || errors.Is(err, unix.EROFS)
}
