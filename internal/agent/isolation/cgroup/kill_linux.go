package cgroup

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-dev/muster/internal/agent/run"
)

// errInvalid is how the kernel refuses a value.
const errInvalid = unix.EINVAL

// killTimeout is how long killed processes may take to be gone.
const killTimeout = 5 * time.Second

// Kill ends all that is in a group, and in those that were made in it but for those of the names
// in but, what is being forked included. It returns when that is gone, also where there is no such
// group, or an error when it does not go within five seconds.
func Kill(g *run.Cgroup, except ...string) error {
	var st unix.Stat_t
	if err := unix.Stat(g.Path, &st); errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return fmt.Errorf("stat %s: %w", g.Path, err)
	}
	var inner []fs.DirEntry
	if st.Nlink > 2 { // each group in it has a link to it
		var err error
		if inner, err = os.ReadDir(g.Path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	skipped := false
	for _, e := range inner {
		switch {
		case !e.IsDir():
		case slices.Contains(except, e.Name()):
			skipped = true
		default:
			if err := Kill(&run.Cgroup{Path: filepath.Join(g.Path, e.Name()), Unified: g.Unified}); err != nil {
				return err
			}
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

// waitEmpty waits until no process is in a group, and calls again in each round in which
// there are some.
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
			return fmt.Errorf("%d processes in the control group %s do not end, even when killed", len(remaining), g.Path)
		}
		onRound(round)
		time.Sleep(pause)
		waited += pause
		pause = min(2*pause, 50*time.Millisecond)
	}
}

// members lists the processes of a group. In a group of version 1 there may also be a
// single thread that is about to start a process: the one to which it belongs is no member.
func members(g *run.Cgroup) ([]int, error) {
	pids, err := readProcs(g.Path)
	if err != nil || g.Unified || len(pids) == 0 {
		return pids, err
	}
	threads := readWords(filepath.Join(g.Path, "tasks"))
	return slices.DeleteFunc(pids, func(pid int) bool {
		return pid == os.Getpid() || !slices.Contains(threads, strconv.Itoa(pid)) && !leaderExited(pid)
	}), nil
}

// leaderExited reports whether the first thread of a process has ended before others.
func leaderExited(pid int) bool { return procState(pid) == 'Z' }

// procState returns that of a process' first thread as a letter; see proc_pid_stat(5). 0
// means that it is gone.
func procState(pid int) byte {
	b, err := readFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if end := bytes.LastIndex(b, []byte(") ")); err == nil && end > 0 && end+2 < len(b) {
		return b[end+2]
	}
	return 0
}

// signalAll sends a signal to the processes of a group that are not in but, and returns them all.
func signalAll(g *run.Cgroup, sig unix.Signal, signaled []int) []int {
	pids, err := members(g)
	if err != nil {
		return signaled // none are left
	}
	for _, pid := range pids {
		if !slices.Contains(signaled, pid) {
			_ = unix.Kill(pid, sig) // gone is fine
		}
	}
	return pids
}

// Freeze stops every process in a group and in those that were made in it, or lets them go on.
// In version 2 the kernel may still be about to when this returns.
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
		return fmt.Errorf("the task cannot be frozen: %w", err)
	}
	return nil
}

// stopTree is stop for a group and those that were made in it, as engines do for a container.
func stopTree(g *run.Cgroup, on bool) {
	stopGroup(g, on)
	inner, _ := os.ReadDir(g.Path) // none in one that is gone
	for _, e := range inner {
		if e.IsDir() {
			stopTree(&run.Cgroup{Path: filepath.Join(g.Path, e.Name())}, on)
		}
	}
}

// stopGroup stops the processes of a group and those that they fork meanwhile, or lets
// them go on. It returns when they have stopped, but for those that wait for a device.
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
	switch procState(pid) {
	case 'R', 'S':
		return true
	default:
		return false
	}
}

// delegated reports whether systemd gave a group to the worker to manage.
func delegated(dir string) bool {
	b := make([]byte, 8)
	for _, name := range []string{"user.delegate", "trusted.delegate"} {
		if n, err := unix.Getxattr(dir, name, b); err == nil && string(b[:n]) == "1" {
			return true
		}
	}
	return false
}
