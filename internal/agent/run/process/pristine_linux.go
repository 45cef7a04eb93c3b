package process

import "golang.org/x/sys/unix"

// pristine reports whether an attempt's folder is unused: it contains only its empty subfolders, and no mode has changed.
func pristine(base string, subdirs []string) bool {
	fd, err := unix.Open(base, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer func() { _ = unix.Close(fd) }()
	if !hasEntries(fd, len(subdirs)) {
		return false
	}
	for _, subdir := range subdirs {
		if !emptyAt(fd, subdir) {
			return false
		}
	}
	return true
}

// isEmpty reports whether path is a folder with nothing in it.
func isEmpty(path string) bool { return emptyAt(unix.AT_FDCWD, path) }

func emptyAt(dir int, name string) bool {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer func() { _ = unix.Close(fd) }()
	return hasEntries(fd, 0)
}

// hasEntries reports whether an open folder has exactly n entries and mode 0700.
func hasEntries(fd, n int) bool {
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil || st.Mode != unix.S_IFDIR|0o700 {
		return false
	}
	var buf [1024]byte
	for {
		size, err := unix.Getdents(fd, buf[:])
		if err != nil {
			return false
		}
		if size == 0 {
			return n == 0
		}
		_, count, _ := unix.ParseDirent(buf[:size], -1, nil)
		if n -= count; n < 0 {
			return false
		}
	}
}
