package container

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/muster-dev/muster/internal/agent/docker"
	"github.com/muster-dev/muster/internal/agent/userns"
)

// errReplaced means that a mount's source is not what was checked.
var errReplaced = errors.New("it was replaced while the task was prepared")

// staging has the sources of mounts from their check until their container has started: an engine opens them when it starts the container, by
// path, where a task may have put a link meanwhile. They are bound in a tmpfs that only root may enter, so that they are what was checked,
// and an engine that does not see the worker's mounts does not find them, instead of an empty folder. It is not in the worker's
// data directory, which may be removed with all that is in it.
type staging struct {
	dir string

	mu     sync.Mutex
	engine *userns.Engine      // in whose mount namespace dir is; nil for that of this process
	held   map[string][]string // folders in dir, by container name
}

func newStaging(data string) *staging {
	sum := sha256.Sum256([]byte(data))
	return &staging{dir: filepath.Join("/run/muster", fmt.Sprintf("mounts-%x", sum[:8])), held: map[string][]string{}}
}

// setEngine sets the engine of the containers to come. It is nil if the worker's mounts are of no use to it.
func (s *staging) setEngine(e *userns.Engine) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.engine.Close()
	s.engine = e
}

// stage binds the sources of a container's mounts, which have no links, and returns the mounts with the new sources. The error is errReplaced if one of
// them has a link now, and EPERM if the worker may not mount.
func (s *staging) stage(name string, mounts []docker.Mount) ([]docker.Mount, error) {
	if len(mounts) == 0 {
		return nil, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	sources := make([]source, len(mounts))
	defer func() {
		for i := range sources {
			sources[i].close()
		}
	}()
	for i := range mounts {
		if err := sources[i].open(mounts[i].Source, s.engine.HasOtherMounts()); err != nil {
			return nil, fmt.Errorf("mount %s: %w", mounts[i].Source, err)
		}
	}
	staged := slices.Clone(mounts)
	return staged, s.engine.WithMounts(func() error {
		if len(s.held) == 0 {
			if err := s.mount(); err != nil {
				return err
			}
		}
		s.held[name] = nil
		for i := range staged {
			at := filepath.Join(s.dir, name+"-"+strconv.Itoa(i))
			if err := sources[i].bind(at); err != nil {
				s.unbind(name)
				return fmt.Errorf("mount %s: %w", mounts[i].Source, err)
			}
			s.held[name] = append(s.held[name], at)
			staged[i].Source = at
		}
		return nil
	})
}

// mapIDs replaces the staged mounts of a container by ones whose files belong, in a user namespace with this map, to the ids that they have on the
// disk. It returns the sources whose file systems do not support that: their files belong to ids that the container does not have.
func (s *staging) mapIDs(name string, ids docker.IDMap) (unmapped []string, err error) {
	ns, err := userns.Open(ids)
	if err != nil {
		return nil, err
	}
	defer func() { _ = ns.Close() }()
	s.mu.Lock()
	defer s.mu.Unlock()
	err = s.engine.WithMounts(func() error {
		for _, at := range s.held[name] {
			fd, err := ns.Clone(at)
			if errors.Is(err, unix.EINVAL) {
				unmapped = append(unmapped, at)
				continue
			}
			if err != nil {
				return err
			}
			_ = unix.Unmount(at, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
			if err := userns.Attach(fd, at); err != nil {
				return err
			}
		}
		return nil
	})
	return unmapped, err
}

// release ends the binds of a container, which has its own when it has started.
func (s *staging) release(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.held[name]; ok {
		_ = s.engine.WithMounts(func() error { s.unbind(name); return nil })
	}
}

// unbind is release with the lock held, among the mounts of the engine.
func (s *staging) unbind(name string) {
	for _, at := range s.held[name] {
		_ = unix.Unmount(at, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		_ = os.Remove(at) // of the tmpfs
	}
	if delete(s.held, name); len(s.held) == 0 {
		s.clear()
	}
}

// mount mounts the tmpfs, unless an earlier incarnation of the worker left it: a shim may be about to start a container with what is in it. It
// goes with the next container.
func (s *staging) mount() error {
	var before, after unix.Stat_t
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	if err := errors.Join(unix.Stat(filepath.Dir(s.dir), &before), unix.Stat(s.dir, &after)); err != nil {
		return err
	}
	if before.Dev != after.Dev {
		return nil
	}
	return os.NewSyscallError("mount", unix.Mount("muster", s.dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=0700,size=1m"))
}

// clear unmounts the tmpfs with all that is in it.
func (s *staging) clear() {
	_ = unix.Unmount(s.dir, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	_ = os.Remove(s.dir)
}

// source is what is at a path without links.
type source struct {
	fd    int // 0 before open
	isDir bool
	tree  bool // fd is a detached mount of it
}

// open opens a path. With tree it can be bound in another mount namespace, which takes Linux 5.2.
func (s *source) open(path string, tree bool) error {
	fd, isDir, err := openPath(path)
	if err != nil {
		return err
	}
	s.fd, s.isDir = fd, isDir
	if !tree {
		return nil
	}
	defer func() { _ = unix.Close(fd) }()
	s.tree = true
	s.fd, err = unix.OpenTree(fd, "", unix.AT_EMPTY_PATH|unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	return os.NewSyscallError("open_tree", err)
}

// bind mounts the source at another path, which it creates, or which the same attempt left before a crash.
func (s *source) bind(at string) (err error) {
	_ = unix.Unmount(at, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	_ = os.Remove(at)
	if s.isDir {
		err = os.Mkdir(at, 0o700)
	} else {
		err = os.WriteFile(at, nil, 0o600)
	}
	switch {
	case err != nil:
		return err
	case s.tree:
		err = userns.Attach(s.fd, at)
		s.fd = 0
		return err
	}
	return os.NewSyscallError("mount", unix.Mount("/proc/self/fd/"+strconv.Itoa(s.fd), at, "", unix.MS_BIND|unix.MS_REC, ""))
}

func (s *source) close() {
	if s.fd > 0 {
		_ = unix.Close(s.fd)
	}
}

// openPath opens an absolute path as openat2(2) does with RESOLVE_NO_SYMLINKS, which older kernels and sandboxes lack.
func openPath(path string) (fd int, isDir bool, err error) {
	const flags = unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err = unix.Open("/", flags, 0)
	for name := range strings.SplitSeq(strings.Trim(filepath.Clean(path), "/"), "/") {
		if err != nil || name == "" {
			break
		}
		parent := fd
		fd, err = unix.Openat(parent, name, flags, 0)
		_ = unix.Close(parent)
	}
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) { // a link is no folder
		return -1, false, errReplaced
	}
	if err != nil {
		return -1, false, os.NewSyscallError("openat", err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT == unix.S_IFLNK {
		_ = unix.Close(fd)
		return -1, false, errReplaced
	}
	return fd, st.Mode&unix.S_IFMT == unix.S_IFDIR, nil
}
