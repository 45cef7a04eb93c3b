package isolation

import (
	"errors"
	"path"

	"golang.org/x/sys/unix"
)

// maxDepth is the deepest tree that is walked by file descriptors, which is faster than by paths: it is done at the start of
// each task.
const maxDepth = 32

var errTooDeep = errors.New("directories are nested too deep")

func (g *treeChowner) walk(dir string) error {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	if err = g.chownDir(fd, "", 0); errors.Is(err, errTooDeep) {
		g.linked = nil
		return g.walkPaths(dir)
	}
	return err
}

// chownDir changes the owner of an open directory, which it closes, and of all that is in it.
func (g *treeChowner) chownDir(fd int, rel string, depth int) error {
	defer func() { _ = unix.Close(fd) }()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if !g.ownedOrLinked(rel, fileStatFrom(&st), true) {
		if err := unix.Fchown(fd, int(g.u.UID), int(g.u.GID)); err != nil {
			return err
		}
	}
	if depth > maxDepth {
		return errTooDeep
	}
	var buf [2048]byte
	for {
		n, err := unix.Getdents(fd, buf[:])
		if err != nil || n == 0 {
			return err
		}
		_, _, names := unix.ParseDirent(buf[:n], -1, nil)
		for _, name := range names {
			if err := g.chownEntry(fd, rel, name, depth); err != nil && !errors.Is(err, unix.ENOENT) {
				return err
			}
		}
	}
}

func (g *treeChowner) chownEntry(dir int, rel, name string, depth int) error {
	var st unix.Stat_t
	if err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		return g.chownDir(fd, path.Join(rel, name), depth+1)
	}
	if g.ownedOrLinked(path.Join(rel, name), fileStatFrom(&st), false) {
		return nil
	}
	return unix.Fchownat(dir, name, int(g.u.UID), int(g.u.GID), unix.AT_SYMLINK_NOFOLLOW)
}

func fileStatFrom(st *unix.Stat_t) fileStat {
	return fileStat{uid: st.Uid, gid: st.Gid, dev: st.Dev, ino: st.Ino, nlink: uint64(st.Nlink)} //nolint:unconvert // 32 bits on some systems
}
