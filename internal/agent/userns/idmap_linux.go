package userns

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/muster-dev/muster/internal/agent/docker"
)

// Namespace is a user namespace without processes. Close frees it; mounts keep their map.
type Namespace struct{ *os.File }

// Open returns a namespace with a map of ids. It needs root.
func Open(m docker.IDMap) (*Namespace, error) {
	// Its first process stops before its program begins: see PTRACE_TRACEME in ptrace(2).
	runtime.LockOSThread() // the parent is a thread
	defer runtime.UnlockOSThread()
	p, err := os.StartProcess("/proc/self/exe", []string{"muster"}, &os.ProcAttr{Sys: &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWUSER, UidMappings: ranges(m.Users), GidMappings: ranges(m.Groups), Ptrace: true, Pdeathsig: unix.SIGKILL,
	}})
	if err != nil {
		return nil, fmt.Errorf("cannot create a user namespace: %w", err)
	}
	f, err := os.Open(fmt.Sprintf("/proc/%d/ns/user", p.Pid))
	_ = p.Kill()
	_, _ = p.Wait() // it was killed
	if err != nil {
		return nil, err
	}
	return &Namespace{f}, nil
}

func ranges(list []docker.IDRange) []syscall.SysProcIDMap {
	out := make([]syscall.SysProcIDMap, len(list))
	for i, r := range list {
		out[i] = syscall.SysProcIDMap{ContainerID: r.Inside, HostID: r.Outside, Size: r.Size}
	}
	return out
}

// Clone returns a descriptor of a detached copy of what is mounted at path, with its submounts, in which files of an id on the disk belong to the user
// of the machine to whom the namespace maps that id. Submounts on file systems that cannot be mapped are copied as they are.
func (n *Namespace) Clone(path string) (int, error) {
	fd, err := unix.OpenTree(unix.AT_FDCWD, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	if err != nil {
		return -1, os.NewSyscallError("open_tree", err)
	}
	attr := &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(n.Fd())}
	err = unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, attr)
	if err != nil {
		err = unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, attr)
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, os.NewSyscallError("mount_setattr", err)
	}
	return fd, nil
}

// Attach mounts a detached mount at a path, and closes its descriptor.
func Attach(fd int, path string) error {
	err := unix.MoveMount(fd, "", unix.AT_FDCWD, path, unix.MOVE_MOUNT_F_EMPTY_PATH)
	return errors.Join(os.NewSyscallError("move_mount", err), unix.Close(fd))
}

// supported returns why containers of an engine cannot have mapped mounts of a folder, nil if they can. With overlay it also tries what Podman does with the layers of
// images, which it copies for each container otherwise.
func supported(dir string, e *Engine, overlay bool) error {
	n, err := Open(docker.MapTo(1 << 30)) // any ids
	if err != nil {
		return err
	}
	defer n.Close()
	fd, err := n.Clone(dir)
	if err != nil {
		return fmt.Errorf("the file system of %s, or this kernel, does not support idmapped mounts: use Linux 5.19 or newer with ext4, xfs or btrfs (%w)", dir, err)
	}
	return e.WithMounts(func() error {
		at, remove, err := attachFor(fd)
		if err != nil {
			return err
		}
		defer remove()
		if !overlay {
			return nil
		}
		if err := mountOverlay(at, filepath.Dir(at)); err != nil {
			return fmt.Errorf("this kernel does not support layers of images that are idmapped mounts: use Linux 5.19 or newer (%w)", err)
		}
		return nil
	})
}

// runDir is where a worker of root mounts what containers get.
const runDir = "/run/muster"

// attachFor attaches a detached mount where only root comes to, until remove is called.
func attachFor(fd int) (at string, remove func(), err error) {
	base := ""
	if err = os.MkdirAll(runDir, 0o700); err == nil {
		base, err = os.MkdirTemp(runDir, "idmap-")
	}
	at = filepath.Join(base, "at")
	if err == nil {
		err = os.Mkdir(at, 0o700)
	}
	if err != nil {
		return "", nil, errors.Join(err, unix.Close(fd))
	}
	if err := Attach(fd, at); err != nil {
		return "", nil, errors.Join(err, os.Remove(at), os.Remove(base))
	}
	return at, func() {
		_ = unix.Unmount(at, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		_, _ = os.Remove(at), os.Remove(base) // not with what is in it
	}, nil
}

// mountOverlay mounts overlayfs of two folders at no path.
func mountOverlay(lower, other string) error {
	fs, err := unix.Fsopen("overlay", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return os.NewSyscallError("fsopen", err)
	}
	defer func() { _ = unix.Close(fs) }()
	if err := unix.FsconfigSetString(fs, "lowerdir", lower+":"+other); err != nil {
		return os.NewSyscallError("fsconfig", err)
	}
	return os.NewSyscallError("fsconfig", unix.FsconfigCreate(fs))
}
