package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-dev/muster/internal/agent/procfs"
	"github.com/muster-dev/muster/internal/agent/run"
)

// errInvalid is the kernel's error for a value that it does not accept.
const errInvalid = unix.EINVAL

// killTimeout is how long killed processes may take to exit.
const killTimeout = 5 * time.Second

// Kill kills all processes in a group and in the groups within it, except the groups with the names in except, even if they fork
// meanwhile. It returns when they have exited or the group does not exist, and an error if they do not exit within five seconds.
func Kill(g *run.Cgroup, except ...string) error {
	inner, err := innerGroups(g.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	skipped := false
	for _, path := range inner {
		if slices.Contains(except, filepath.Base(path)) {
			skipped = true
		} else if err := Kill(&run.Cgroup{Path: path, Unified: g.Unified}); err != nil {
			return err
		}
	}
	if g.Unified && !skipped && writeControl(g.Path, "cgroup.kill", "1") == nil { // since Linux 5.14
		return waitEmpty(g, func(int) {})
	}
	return waitEmpty(g, func(round int) {
		if round > 0 {
			stopGroup(g, true) // they may fork faster than they are killed
		}
		signalAll(g, unix.SIGKILL, nil)
	})
}

// innerGroups is subgroups without the cost of reading the directory if there are none.
func innerGroups(path string) ([]string, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return nil, fmt.Errorf("stat %s: %w", path, err)
	}
	if st.Nlink <= 2 { // each group in it has a link to it
		return nil, nil
	}
	return subgroups(path)
}

// Members lists the processes in a group and in the groups within it. In version 1 it may include the process that is about to
// start the first process of the group.
func Members(g *run.Cgroup) ([]int, error) {
	pids, err := readProcs(g.Path)
	if err != nil {
		return nil, err
	}
	inner, err := innerGroups(g.Path)
	for _, path := range inner {
		more, _ := Members(&run.Cgroup{Path: path, Unified: g.Unified}) // a group that was just removed has none
		pids = append(pids, more...)
	}
	return pids, err
}

// waitEmpty waits until a group has no processes, and calls onRound in each round in which it has some.
func waitEmpty(g *run.Cgroup, onRound func(round int)) error {
	pause, waited := 100*time.Microsecond, time.Duration(0)
	for round := 0; ; round++ {
		remaining, err := members(g)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) || err == nil && len(remaining) == 0 {
			return nil
		}
		if err != nil {
			return err
		}
		if waited >= killTimeout {
			return fmt.Errorf("%d processes in the control group %s do not exit, even when killed", len(remaining), g.Path)
		}
		onRound(round)
		time.Sleep(pause)
		waited += pause
		pause = min(2*pause, 50*time.Millisecond)
	}
}

// members lists the processes of a group. A group of version 1 may also contain a single thread that is about to start a process:
// the process of that thread is not a member.
func members(g *run.Cgroup) ([]int, error) {
	pids, err := readProcs(g.Path)
	if err != nil || g.Unified || len(pids) == 0 {
		return pids, err
	}
	threads := readWords(filepath.Join(g.Path, "tasks"))
	return slices.DeleteFunc(pids, func(pid int) bool {
		return pid == os.Getpid() || !slices.Contains(threads, strconv.Itoa(pid)) && procState(pid) != 'Z' // Z: other threads still run
	}), nil
}

// procState returns the state of a process's first thread, 0 if there is no such process.
func procState(pid int) byte {
	st, _ := procfs.ReadStat(pid)
	return st.State
}

// signalAll sends a signal to the processes of a group except those in signaled, and returns all its processes.
func signalAll(g *run.Cgroup, sig unix.Signal, signaled []int) []int {
	pids, err := members(g)
	if err != nil {
		return signaled // the group was removed
	}
	for _, pid := range pids {
		if !slices.Contains(signaled, pid) {
			_ = unix.Kill(pid, sig) // it may have exited
		}
	}
	return pids
}

// Freeze stops or continues all processes in a group and in the groups within it. With version 2 the kernel may still be about
// to do so when Freeze returns.
func Freeze(g *run.Cgroup, on bool) error {
	if !g.Unified {
		stopTree(g, on)
		return nil
	}
	value := "0"
	if on {
		value = "1"
	}
	if err := ignoreNotExist(writeControl(g.Path, "cgroup.freeze", value)); err != nil {
		return fmt.Errorf("cannot freeze the task: %w", err)
	}
	return nil
}

// stopTree is stopGroup for a group and the groups within it, which engines create for a container.
func stopTree(g *run.Cgroup, on bool) {
	stopGroup(g, on)
	inner, _ := subgroups(g.Path)
	for _, path := range inner {
		stopTree(&run.Cgroup{Path: path}, on)
	}
}

// stopGroup stops or continues the processes of a group and those that they fork meanwhile. It returns when they have stopped,
// except those that wait for a device.
func stopGroup(g *run.Cgroup, on bool) {
	if !on {
		signalAll(g, unix.SIGCONT, nil)
		return
	}
	var stopped []int
	pause := 100 * time.Microsecond
	for range 100 {
		all := signalAll(g, unix.SIGSTOP, stopped)
		if !slices.ContainsFunc(all, func(pid int) bool { return !slices.Contains(stopped, pid) || isRunning(pid) }) {
			return
		}
		stopped = all
		time.Sleep(pause)
		pause = min(2*pause, 10*time.Millisecond)
	}
}

// isRunning reports whether a process has not stopped yet.
func isRunning(pid int) bool {
	state := procState(pid)
	return state == 'R' || state == 'S'
}

// delegated reports whether systemd delegated a group to the worker.
func delegated(dir string) bool {
	b := make([]byte, 8)
	for _, name := range []string{"user.delegate", "trusted.delegate"} {
		if n, err := unix.Getxattr(dir, name, b); err == nil && string(b[:n]) == "1" {
			return true
		}
	}
	return false
}
