package process

import "syscall"

// noSpace reports whether the disk under path is full.
func noSpace(path string) bool {
	var st syscall.Statfs_t
	return syscall.Statfs(path, &st) == nil && int64(st.Bavail)*st.Bsize < 64<<10
}
