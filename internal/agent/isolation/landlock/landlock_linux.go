package landlock

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
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

// splitDevices separates devices, which all tasks have in common, from other paths.
func splitDevices(paths []string) (devices, rest []string) {
	for _, p := range paths {
		if strings.HasPrefix(p, "/dev/") {
			devices = append(devices, p)
		} else {
			rest = append(rest, p)
		}
	}
	return devices, rest
}

// addRule adds a rule for an open path.
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
