// Package view creates mount namespaces in which tasks see less of the machine than the worker: a /proc with only their own
// processes, selected paths in folders that their user may not pass through, and shared memory of their own.
package view

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/muster-dev/muster/internal/agent/isolation/netns"
	"github.com/muster-dev/muster/internal/agent/run"
)

// namespaces are those of this process, one for all tasks with the same view. An open file holds each: this process itself never
// enters one.
type namespaces struct {
	mu    sync.Mutex
	byKey map[string]*namespace
}

type namespace struct {
	mu   sync.Mutex
	fd   int // -1 until it is created
	root int // the root of processes in it; -1 for that of the namespace
}

var cached = namespaces{byKey: map[string]*namespace{}} //nolint:gochecknoglobals // namespaces belong to the process

// Key identifies a view; it is "" for nil.
func Key(v *run.View) string {
	if v == nil {
		return ""
	}
	return strings.Join(v.Hide, "\x00") + "\x00\x00" + strings.Join(v.Show, "\x00") + "\x00\x00" + strconv.FormatBool(v.NoUserNamespaces)
}

// Ensure creates the namespace of a view unless it exists.
func Ensure(v *run.View) error {
	_, err := cached.open(v)
	return err
}

// NoUserNamespaces reports whether processes in a view cannot create user namespaces. It is false if this process may not change
// its root.
func NoUserNamespaces(v *run.View) bool {
	s, err := cached.open(v)
	return err == nil && s.root >= 0
}

// Enter moves the calling thread into the namespace of a view. The thread must be locked to its goroutine, and end with it: its
// working directory, root and umask are separate from then on.
func Enter(v *run.View) error {
	s, err := cached.open(v)
	if err != nil {
		return err
	}
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return os.NewSyscallError("unshare", err)
	}
	if err := unix.Setns(s.fd, unix.CLONE_NEWNS); err != nil {
		return os.NewSyscallError("setns", err)
	}
	if s.root < 0 {
		return nil
	}
	if err := unix.Fchdir(s.root); err != nil {
		return os.NewSyscallError("fchdir", err)
	}
	return os.NewSyscallError("chroot", unix.Chroot("."))
}

// sharedMemory is where programs share memory by files.
const sharedMemory = "/dev/shm"

// OwnIPC moves the calling thread, after Enter, into IPC and mount namespaces of its own, with an empty /dev/shm. What its processes write
// there is charged to their control group.
func OwnIPC(ipc *run.IPC) error {
	if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_NEWIPC); err != nil {
		return os.NewSyscallError("unshare", err)
	}
	options := "mode=1777"
	if ipc.Size > 0 {
		pages := max(1, int64(ipc.Size)/4096)
		options = fmt.Sprintf("mode=1777,size=%d,nr_inodes=%d", pages*4096, pages+1) // 0 would be no limit
	}
	if err := unix.Mount("shm", sharedMemory, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		return fmt.Errorf("mount a %s: %w", sharedMemory, err)
	}
	return nil
}

// TryIPC returns why processes in a view cannot have an IPC of their own, nil if they can.
func TryIPC(v *run.View) error {
	var err error
	netns.OnThread(func() {
		if err = Enter(v); err == nil {
			err = OwnIPC(&run.IPC{Size: 4096})
		}
	})
	return err
}

// Join moves the calling thread into the namespaces and the root of a task that has entered a view and its own IPC. The thread must be as for
// Enter.
func Join(t *Task) error {
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return os.NewSyscallError("unshare", err)
	}
	for _, ns := range []struct {
		file *os.File
		kind int
	}{{t.ipc, unix.CLONE_NEWIPC}, {t.mounts, unix.CLONE_NEWNS}} {
		if err := unix.Setns(int(ns.file.Fd()), ns.kind); err != nil {
			return os.NewSyscallError("setns", err)
		}
	}
	if err := unix.Fchdir(int(t.root.Fd())); err != nil {
		return os.NewSyscallError("fchdir", err)
	}
	return os.NewSyscallError("chroot", unix.Chroot("."))
}

// Task is what a running task has entered. The caller closes it.
type Task struct{ ipc, mounts, root *os.File }

// OpenTask opens what a process has entered. It needs the privileges to trace the process, which must not have been reaped.
func OpenTask(pid int) (_ *Task, err error) {
	t := &Task{}
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	if t.ipc, err = os.Open(filepath.Join(dir, "ns/ipc")); err == nil {
		t.mounts, err = os.Open(filepath.Join(dir, "ns/mnt"))
	}
	if err == nil {
		t.root, err = os.OpenFile(filepath.Join(dir, "root"), unix.O_PATH|unix.O_DIRECTORY, 0)
	}
	if err != nil {
		t.Close()
		return nil, err
	}
	return t, nil
}

// Close closes what OpenTask opened.
func (t *Task) Close() {
	for _, f := range []*os.File{t.ipc, t.mounts, t.root} {
		if f != nil {
			_ = f.Close()
		}
	}
}

// open returns the namespace of a view, which does not change any more.
func (n *namespaces) open(v *run.View) (*namespace, error) {
	key := Key(v)
	n.mu.Lock()
	s := n.byKey[key]
	if s == nil {
		s = &namespace{fd: -1, root: -1}
		n.byKey[key] = s
	}
	n.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fd >= 0 {
		return s, nil
	}
	var err error
	netns.OnThread(func() { err = s.create(v) })
	return s, err
}

// create creates a namespace on a thread that ends afterwards.
func (s *namespace) create(v *run.View) error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return os.NewSyscallError("unshare", err)
	}
	// The folders created below must be open to all, whatever the worker's umask. This sets only the thread's umask, since the
	// new namespace has its own file system context.
	unix.Umask(0o022)
	// Later mounts of the machine appear here as well, but not the other way round.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return os.NewSyscallError("mount", err)
	}
	if err := hideDirs(v); err != nil {
		return err
	}
	// Kernels before 5.8 have one set of options for all mounts of /proc, and refuse this value.
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "hidepid=ptraceable"); err != nil {
		return fmt.Errorf("mount a /proc of their own (Linux 5.8 or newer): %w", err)
	}
	for _, path := range []string{"/proc/keys", "/proc/key-users"} { // keyrings of the machine, which engines hide from containers, too
		if err := unix.Mount("/dev/null", path, "", unix.MS_BIND, ""); err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("hide %s: %w", path, err)
		}
	}
	fd, err := unix.Open("/proc/thread-self/ns/mnt", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("open", err)
	}
	if v.NoUserNamespaces && unix.Chroot("/") == nil { // it may change its root
		if s.root, err = coverRoot(); err != nil {
			_ = unix.Close(fd)
			return err
		}
	}
	s.fd = fd
	return nil
}

// coverRoot mounts a file system over the root of this thread's namespace, and returns the root below it. The kernel denies new user
// namespaces to processes whose root is not that of their namespace (clone(2), EPERM); all paths lead where they did.
func coverRoot() (int, error) {
	root, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, os.NewSyscallError("open", err)
	}
	if err := unix.Mount("/", "/", "", unix.MS_BIND, ""); err != nil {
		_ = unix.Close(root)
		return -1, os.NewSyscallError("mount", err)
	}
	return root, nil
}

// hideDirs mounts empty folders over those to hide, and mounts the paths to show in them.
func hideDirs(v *run.View) error {
	trees := map[string]int{} // by path
	defer func() {
		for _, fd := range trees {
			_ = unix.Close(fd)
		}
	}()
	for _, path := range v.Show {
		fd, err := unix.OpenTree(unix.AT_FDCWD, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
		if errors.Is(err, unix.ENOENT) {
			continue // it was removed
		}
		if err != nil {
			return fmt.Errorf("show %s: %w", path, err)
		}
		trees[path] = fd
	}
	for _, dir := range v.Hide {
		if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755,size=1m"); err != nil {
			return fmt.Errorf("hide %s: %w", dir, err)
		}
	}
	for _, path := range v.Show {
		tree, found := trees[path]
		if !found {
			continue
		}
		if err := mountTree(tree, path); err != nil {
			return fmt.Errorf("show %s: %w", path, err)
		}
	}
	for _, dir := range v.Hide {
		if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV, ""); err != nil {
			return fmt.Errorf("hide %s: %w", dir, err)
		}
	}
	return nil
}

// mountTree mounts a tree at path, which is in a hidden folder. If path exists, it is visible through another one.
func mountTree(tree int, path string) error {
	if _, err := os.Lstat(path); err == nil {
		return nil
	}
	var st unix.Stat_t
	if err := unix.Fstat(tree, &st); err != nil {
		return err
	}
	dir := path
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		dir = filepath.Dir(path)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // users pass through it to the visible paths
		return err
	}
	if dir != path {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			return err
		}
	}
	return os.NewSyscallError("move_mount", unix.MoveMount(tree, "", unix.AT_FDCWD, path, unix.MOVE_MOUNT_F_EMPTY_PATH))
}
