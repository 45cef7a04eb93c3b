//go:build unix

package limit

import (
	"io/fs"
	"syscall"
)

// facts are what the system says of a file besides its mode.
type facts struct {
	uid, gid  uint32
	dev, file uint64
	names     uint64 // that it has
}

func factsOf(info fs.FileInfo) (facts, bool) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return facts{}, false
	}
	return facts{uid: st.Uid, gid: st.Gid, dev: uint64(st.Dev), file: st.Ino, names: uint64(st.Nlink)}, true //nolint:unconvert // other systems have other types
}
