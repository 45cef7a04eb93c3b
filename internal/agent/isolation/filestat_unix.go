//go:build unix

package isolation

import (
	"io/fs"
	"syscall"
)

func fileStatOf(info fs.FileInfo) (fileStat, bool) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fileStat{}, false
	}
	return fileStat{uid: st.Uid, gid: st.Gid, dev: uint64(st.Dev), ino: st.Ino, nlink: uint64(st.Nlink)}, true //nolint:unconvert // other systems have other types
}
