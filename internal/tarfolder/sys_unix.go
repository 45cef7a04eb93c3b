//go:build unix

package tarfolder

import (
	"os"
	"syscall"
)

const errDiskFull = syscall.ENOSPC

// chownDir changes the owner of a folder, which others may replace by anything meanwhile.
func chownDir(root *os.Root, name string, o *Owner) error {
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	return f.Chown(o.UID, o.GID)
}

// OwnerOf returns the owner of a file.
func OwnerOf(info os.FileInfo) *Owner {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return nil
	}
	return &Owner{UID: int(st.Uid), GID: int(st.Gid)}
}
