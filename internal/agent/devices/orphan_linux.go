package devices

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

const (
	maxAncestors  = 64            // how far up a process's parents are followed
	taskTagPrefix = "MUSTER_OUT=" // begins the mark of every task
)

// belongsTo reports whether a process is of the task with mark: by its environment, or
// by that of a process that it descends from. With alone, one that descends from the
// worker or its shim and has lost every mark counts as well.
func belongsTo(pid int, envTag, data string, exclusive bool) bool {
	self := os.Getpid()
	for depth := range maxAncestors {
		if pid == self || isShim(pid, data) {
			return exclusive && depth > 0
		}
		env := environ(pid)
		if slices.ContainsFunc(env, func(entry []byte) bool { return string(entry) == envTag }) {
			return true // also where it is not the first: containers have taskTagPrefix besides
		}
		if slices.ContainsFunc(env, func(entry []byte) bool { return bytes.HasPrefix(entry, []byte(taskTagPrefix)) }) {
			return false
		}
		if pid = parentPID(pid); pid <= 1 {
			return false
		}
	}
	return false
}

// isShim reports whether a process stands by the tasks of the worker with this data
// dir.
func isShim(pid int, data string) bool {
	line, err := os.ReadFile(procPath(pid, "cmdline"))
	if err != nil {
		return false
	}
	args := bytes.Split(line, []byte{0})
	if len(args) < 3 || string(args[1]) != "shim" {
		return false
	}
	for _, arg := range args[2:] {
		if string(arg) == data {
			return true
		}
	}
	return false
}

func procPath(pid int, name string) string { return "/proc/" + strconv.Itoa(pid) + "/" + name }

// environ is the environment with which a process was started, as far as this user may
// see it.
func environ(pid int) [][]byte {
	env, err := os.ReadFile(procPath(pid, "environ"))
	if err != nil {
		return nil
	}
	return bytes.Split(env, []byte{0})
}

// procStat returns the state of a process and its parent; 0 if it is not there.
func procStat(pid int) (state byte, parent int) {
	line, err := os.ReadFile(procPath(pid, "stat"))
	_, after, ok := bytes.Cut(line[bytes.LastIndexByte(line, ')')+1:], []byte{' '}) // the name before it may hold anything
	fields := bytes.Fields(after)
	if err != nil || !ok || len(fields) < 2 || len(fields[0]) != 1 {
		return 0, 0
	}
	parent, err = strconv.Atoi(string(fields[1]))
	if err != nil {
		return 0, 0
	}
	return fields[0][0], parent
}

func parentPID(pid int) int {
	_, p := procStat(pid)
	return p
}

// hasExited reports whether a process is gone, or has no memory of its own any more and
// is about to go.
func hasExited(pid int) bool {
	state, _ := procStat(pid)
	if state == 0 || state == 'Z' || state == 'X' {
		return true
	}
	_, err := os.Readlink(procPath(pid, "exe"))
	return errors.Is(err, fs.ErrNotExist)
}

// kill ends a process if it is still that of which mine holds.
func kill(pid int, stillOwned func() bool) error {
	fd, err := unix.PidfdOpen(pid, 0)
	switch {
	case errors.Is(err, unix.ESRCH):
		return nil // it has just ended
	case errors.Is(err, unix.ENOSYS): // before Linux 5.3
		if stillOwned() {
			err = unix.Kill(pid, unix.SIGKILL)
		}
	case err == nil:
		defer func() { _ = unix.Close(fd) }() // nothing was written
		// If the number was given to another process since fd was opened, fd names
		// one that is gone.
		if stillOwned() {
			err = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
		}
	}
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	return err
}
