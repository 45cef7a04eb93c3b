package devices

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/muster-dev/muster/internal/agent/procfs"
)

const (
	maxAncestors  = 64            // how many ancestors of a process are checked
	taskTagPrefix = "MUSTER_OUT=" // the environment of every task has such an entry
)

// belongsTo reports whether a process belongs to the task with envTag: by its environment, or by that of an ancestor. With
// exclusive, a process without any tag that descends from the worker or its shim counts as well.
func belongsTo(pid int, envTag, data string, exclusive bool) bool {
	self := os.Getpid()
	for depth := range maxAncestors {
		if pid == self || isShim(pid, data) {
			return exclusive && depth > 0
		}
		env := procfs.Environ(pid)
		if slices.ContainsFunc(env, func(entry []byte) bool { return string(entry) == envTag }) {
			return true // first: containers have an entry with taskTagPrefix as well
		}
		if slices.ContainsFunc(env, func(entry []byte) bool { return bytes.HasPrefix(entry, []byte(taskTagPrefix)) }) {
			return false
		}
		st, _ := procfs.ReadStat(pid)
		if pid = st.Parent; pid <= 1 {
			return false
		}
	}
	return false
}

// isShim reports whether a process is the shim of the worker with this data dir.
func isShim(pid int, data string) bool {
	args := procfs.Args(pid)
	return len(args) >= 3 && string(args[1]) == "shim" &&
		slices.ContainsFunc(args[2:], func(arg []byte) bool { return string(arg) == data })
}

// hasExited reports whether a process does not exist, or has freed its memory and is about to exit.
func hasExited(pid int) bool {
	st, ok := procfs.ReadStat(pid)
	if !ok || st.State == 'Z' || st.State == 'X' {
		return true
	}
	_, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	return errors.Is(err, fs.ErrNotExist)
}

// kill kills a process if stillOwned returns true after the process is pinned: the number may be reused before.
func kill(pid int, stillOwned func() bool) error {
	fd, err := unix.PidfdOpen(pid, 0)
	switch {
	case errors.Is(err, unix.ENOSYS): // before Linux 5.3
		if stillOwned() {
			err = unix.Kill(pid, unix.SIGKILL)
		}
	case err == nil:
		defer func() { _ = unix.Close(fd) }() // nothing was written
		// If the number was reused after fd was opened, fd is that of a process that has exited.
		if stillOwned() {
			err = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
		}
	}
	if errors.Is(err, unix.ESRCH) {
		return nil // it has just ended
	}
	return err
}
