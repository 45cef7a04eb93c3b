package userns

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/muster-dev/muster/internal/agent/isolation/netns"
)

// Engine is the process that has made the socket of an engine on this machine. It may see other mounts than the worker: the worker's, as a service
// with ProtectSystem of systemd, are none of the machine's.
type Engine struct {
	root   string   // the path of its root folder
	mounts *os.File // its mount namespace; nil if it is that of this process
}

// FindEngine returns the engine at host. It fails unless that is a process of root.
func FindEngine(host string) (*Engine, error) {
	conn, err := net.Dial("unix", strings.TrimPrefix(host, "unix://"))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	peer, err := credentials(conn)
	if err != nil {
		return nil, err
	}
	proc := fmt.Sprintf("/proc/%d", peer.Pid)
	info, err := os.Stat(proc)
	if err != nil {
		return nil, fmt.Errorf("the process that listens at %s is not there: %w", host, err)
	}
	// The number may be of another process now, but that of a task is in none of these.
	if uid, ok := owner(info); !ok || uid != 0 || !sameNamespace(proc, "pid") || !sameNamespace(proc, "user") {
		return nil, fmt.Errorf("process %d, which listens at %s, is not of root, or has namespaces of its own", peer.Pid, host)
	}
	e := &Engine{root: proc + "/root"}
	if !sameNamespace(proc, "mnt") {
		if e.mounts, err = os.Open(proc + "/ns/mnt"); err != nil {
			return nil, err
		}
	}
	return e, nil
}

func credentials(conn net.Conn) (peer *unix.Ucred, err error) {
	unixConn, ok := conn.(*net.UnixConn)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	raw, err := unixConn.SyscallConn()
	if err != nil {
		return nil, err
	}
	var failed error
	err = raw.Control(func(fd uintptr) { peer, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	return peer, errors.Join(err, os.NewSyscallError("getsockopt", failed))
}

// sameNamespace reports whether this process and another one are in the same namespace of a kind.
func sameNamespace(proc, kind string) bool {
	own, err := os.Readlink("/proc/self/ns/" + kind)
	other, otherErr := os.Readlink(proc + "/ns/" + kind)
	return err == nil && otherErr == nil && own == other
}

// HasOtherMounts reports whether the engine does not see the mounts of this process. WithMounts does.
func (e *Engine) HasOtherMounts() bool { return e != nil && e.mounts != nil }

// WithMounts calls f in the engine's mount namespace, perhaps on another thread. Descriptors that are open keep referring to what they do. e may be nil: then f is in this process's.
func (e *Engine) WithMounts(f func() error) (err error) {
	if !e.HasOtherMounts() {
		return f()
	}
	netns.OnThread(func() {
		if err = os.NewSyscallError("unshare", unix.Unshare(unix.CLONE_FS)); err == nil {
			err = os.NewSyscallError("setns", unix.Setns(int(e.mounts.Fd()), unix.CLONE_NEWNS))
		}
		if err == nil {
			err = f()
		}
	})
	return err
}

// Close frees what the engine's mounts are found by.
func (e *Engine) Close() error {
	if !e.HasOtherMounts() {
		return nil
	}
	return e.mounts.Close()
}

// owner returns the user who owns a file.
func owner(info os.FileInfo) (uid uint32, ok bool) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return st.Uid, true
}
