package landlock

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/muster-dev/muster/internal/agent/run"
)

// ABI returns the kernel's version of Landlock, 0 for none.
func ABI() int { return version() }

var version = sync.OnceValue(func() int {
	v, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0
	}
	return int(v)
})

const (
	mayReadDir  = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
	mayReadFile = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE

	// Without devices: root could create that of the disk.
	mayWriteDir = mayReadDir | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE |
		unix.LANDLOCK_ACCESS_FS_REMOVE_DIR | unix.LANDLOCK_ACCESS_FS_REMOVE_FILE | unix.LANDLOCK_ACCESS_FS_REFER |
		unix.LANDLOCK_ACCESS_FS_MAKE_DIR | unix.LANDLOCK_ACCESS_FS_MAKE_REG | unix.LANDLOCK_ACCESS_FS_MAKE_SOCK |
		unix.LANDLOCK_ACCESS_FS_MAKE_FIFO | unix.LANDLOCK_ACCESS_FS_MAKE_SYM | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	mayWriteFile = mayReadFile | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV

	handledRights = mayWriteDir | unix.LANDLOCK_ACCESS_FS_MAKE_CHAR | unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK
)

// supportedRights returns those of the rights that a version of Landlock has.
func supportedRights(rights uint64, abi int) uint64 {
	if abi < 2 {
		rights &^= unix.LANDLOCK_ACCESS_FS_REFER
	}
	if abi < TruncateABI {
		rights &^= unix.LANDLOCK_ACCESS_FS_TRUNCATE
	}
	if abi < IoctlABI {
		rights &^= unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	}
	return rights
}

// Enter restricts the calling thread to s irrevocably. The thread must have no_new_privs. view names the mount namespace of the
// thread: a path may lead elsewhere there.
func Enter(s *run.Sandbox, view string) error {
	cache := cacheOf(view)
	abi := ABI()
	if abi == 0 {
		return errors.New("this kernel has no Landlock")
	}
	attr := unix.LandlockRulesetAttr{Handled_access_fs: supportedRights(handledRights, abi)}
	if abi >= StrictABI {
		attr.Scoped = unix.LANDLOCK_SCOPE_SIGNAL | unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET
	}
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0) //nolint:gosec // there is no other way to call it
	if errno != 0 {
		return os.NewSyscallError("landlock_create_ruleset", errno)
	}
	rules := int(fd)
	defer func() { _ = unix.Close(rules) }()
	err := cache.forEach(s.Read, func(p string, handle openPath) error {
		return addRule(rules, p, handle, supportedRights(mayReadDir, abi), supportedRights(mayReadFile, abi))
	})
	if err == nil {
		err = cache.forEach(s.List, func(p string, handle openPath) error {
			return addRule(rules, p, handle, unix.LANDLOCK_ACCESS_FS_READ_DIR, 0)
		})
	}
	if err != nil {
		return err
	}
	write := func(p string, handle openPath) error {
		return addRule(rules, p, handle, supportedRights(mayWriteDir, abi), supportedRights(mayWriteFile, abi))
	}
	devices, others := splitDevices(s.Write)
	if err := cache.forEach(devices, write); err != nil {
		return err
	}
	for _, p := range others {
		handle, err := openPathFD(p)
		if err == nil && handle.fd >= 0 {
			err = write(p, handle)
			_ = unix.Close(handle.fd)
		}
		if err != nil {
			return err
		}
	}
	if _, _, errno = unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, fd, 0, 0); errno != 0 {
		return os.NewSyscallError("landlock_restrict_self", errno)
	}
	return nil
}

// splitDevices separates devices, which all tasks have in common, from other paths, such as a /dev/shm of the task's own.
func splitDevices(paths []string) (devices, rest []string) {
	for _, p := range paths {
		if strings.HasPrefix(p, "/dev/") && p != "/dev/shm" {
			devices = append(devices, p)
		} else {
			rest = append(rest, p)
		}
	}
	return devices, rest
}

func addRule(rules int, path string, handle openPath, dir, file uint64) error {
	rule := unix.LandlockPathBeneathAttr{Allowed_access: dir, Parent_fd: int32(handle.fd)}
	if !handle.dir {
		rule.Allowed_access = file
	}
	if rule.Allowed_access == 0 {
		return nil
	}
	_, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(rules), unix.LANDLOCK_RULE_PATH_BENEATH,
		uintptr(unsafe.Pointer(&rule)), 0, 0, 0) //nolint:gosec // there is no other way to call it
	if errno != 0 && errno != unix.EBADFD { // EBADFD: a file without a place in a file system
		return fmt.Errorf("landlock_add_rule for %s: %w", path, errno)
	}
	return nil
}

// cacheTTL is how long a path stays open after the start of a task: long enough for the next tasks, and short enough not to
// prevent an unmount.
const cacheTTL = time.Second

// pathCache keeps paths open that many tasks may access, for tasks that start within a moment: opening them again took a third of
// the time of a start. It is safe for concurrent use.
type pathCache struct {
	mu    sync.RWMutex // read-locked while open paths are in use
	open  map[string]openPath
	timer *time.Timer
}

// openPath is an open path. fd is -1 if the path does not exist or this user cannot reach it.
type openPath struct {
	fd  int
	dir bool
}

// caches are those of this process, by the mount namespace in which they opened paths.
var caches struct {
	sync.Mutex
	of map[string]*pathCache
}

func cacheOf(view string) *pathCache {
	caches.Lock()
	defer caches.Unlock()
	p := caches.of[view]
	if p == nil {
		p = &pathCache{}
		if caches.of == nil {
			caches.of = map[string]*pathCache{}
		}
		caches.of[view] = p
	}
	return p
}

// forEach calls fn for every path that exists.
func (p *pathCache) forEach(paths []string, fn func(path string, handle openPath) error) error {
	if err := p.rlockOpen(paths); err != nil {
		return err
	}
	defer p.mu.RUnlock()
	for _, path := range paths {
		if handle := p.open[path]; handle.fd >= 0 {
			if err := fn(path, handle); err != nil {
				return err
			}
		}
	}
	return nil
}

// rlockOpen opens the paths that are not open, and returns with the read lock held unless it fails.
func (p *pathCache) rlockOpen(paths []string) error {
	for {
		p.mu.RLock()
		if p.has(paths) {
			return nil
		}
		p.mu.RUnlock()
		if err := p.openMissing(paths); err != nil {
			return err
		}
	}
}

func (p *pathCache) has(paths []string) bool {
	for _, path := range paths {
		if _, ok := p.open[path]; !ok {
			return false
		}
	}
	return true
}

func (p *pathCache) openMissing(paths []string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.timer == nil {
		p.open, p.timer = map[string]openPath{}, time.AfterFunc(cacheTTL, p.close)
	}
	for _, path := range paths {
		if _, ok := p.open[path]; ok {
			continue
		}
		handle, err := openPathFD(path)
		if err != nil {
			return err
		}
		p.open[path] = handle
	}
	return nil
}

func (p *pathCache) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, handle := range p.open {
		if handle.fd >= 0 {
			_ = unix.Close(handle.fd)
		}
	}
	p.open, p.timer = nil, nil
}

func openPathFD(path string) (openPath, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return openPath{fd: -1}, nil //nolint:nilerr // a path that does not exist or cannot be reached needs no rule
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		_ = unix.Close(fd)
		return openPath{}, fmt.Errorf("stat %s: %w", path, err)
	}
	return openPath{fd, st.Mode&unix.S_IFMT == unix.S_IFDIR}, nil
}
