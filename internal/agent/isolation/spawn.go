package isolation

import (
	"errors"
	"net"
	"os"

	"github.com/muster-dev/muster/internal/agent/isolation/cgroup"
	"github.com/muster-dev/muster/internal/agent/isolation/view"
	"github.com/muster-dev/muster/internal/agent/run"
)

// Program is a program for Spawn to start.
type Program struct {
	Path   string // absolute, or relative to Dir
	Argv   []string
	Env    []string
	Dir    string
	Stdin  *os.File
	Stdout *os.File
	Stderr *os.File

	// OnListener receives the listener on run.ProxyPort of the program's own loopback device, if IsolationSpec.AllowHosts is not
	// empty, after the start of the program. The receiver closes it.
	OnListener func(l net.Listener)
	// NSInit is the command of this program that calls netns.Init. Without privileges, OnListener and the loopback device of a network of
	// its own need it.
	NSInit []string

	// TTY makes Stdin, a terminal, the controlling terminal of the new session.
	TTY bool
	// Network is the network of a running task, such as /proc/PID/ns/net, which the program joins with IsolationSpec.NoNet; nil means a new one.
	// It needs privileges.
	Network *os.File
	// Task is a running task, whose view and IPC the program joins with IsolationSpec.IPC; nil means new ones. It needs privileges.
	Task *RunningTask

	extraFile *os.File // open in it as file 3
}

// RunningTask is what a running task has entered: its view and its IPC.
type RunningTask = view.Task

// OpenTask opens what a process has entered, which must not have been reaped. The caller closes it.
func OpenTask(pid int) (*RunningTask, error) { return view.OpenTask(pid) }

// Spawn starts a program as the leader of a new session: it has no terminal unless it is given one, and cannot join the caller's process group. c applies
// from its first instruction; c may be nil. pidfd is a handle for its end, -1 where the system has none; the caller closes it and
// reaps the process. The calling process does not change. If Spawn fails, nothing runs: the error is a *run.TaskError if c
// is not possible here, else the system's error, such as ENOENT.
func Spawn(c *run.IsolationSpec, p Program) (pid, pidfd int, err error) {
	if c == nil {
		c = &run.IsolationSpec{}
	}
	return spawn(c, &p)
}

// conmonCgroup is the group that Podman creates, beside a container's own, for the process that reports the end of the
// container. If that is killed, Podman shows the container as running forever.
const conmonCgroup = "conmon"

// Kill kills every process in the groups of c, even if they fork meanwhile, and returns when they have exited, or an error if they do
// not exit. Without groups, or if c is nil, it does nothing. The monitor of a container is left to exit by itself.
func Kill(c *run.IsolationSpec) error {
	if c == nil {
		return nil
	}
	var except []string
	if c.CgroupParent != "" {
		except = []string{conmonCgroup}
	}
	var errs []error
	for i := range c.Cgroups {
		if g := &c.Cgroups[i]; !g.Shared {
			errs = append(errs, cgroup.Kill(g, except...))
		}
	}
	return errors.Join(errs...)
}

// Freeze stops or continues every process in the groups of c. It reports false if c has no group that can do that.
func Freeze(c *run.IsolationSpec, on bool) (bool, error) {
	g := ownCgroup(c)
	if g == nil {
		return false, nil
	}
	return true, cgroup.Freeze(g, on)
}

// HasOwnCgroup reports whether c has a control group that no other attempt shares: it contains all processes of the attempt.
func HasOwnCgroup(c *run.IsolationSpec) bool { return ownCgroup(c) != nil }

func ownCgroup(c *run.IsolationSpec) *run.Cgroup {
	if c == nil {
		return nil
	}
	for i := range c.Cgroups {
		if g := &c.Cgroups[i]; !g.Shared { // every hierarchy of version 1 has the same processes
			return g
		}
	}
	return nil
}

// Processes lists the processes in the control group of a task. It reports false if the task has no group of its own, or
// the group cannot be read.
func (l *Isolator) Processes(c *run.IsolationSpec) (pids []int, ok bool) {
	g := ownCgroup(c)
	if g == nil {
		return nil, false
	}
	pids, err := cgroup.Members(g)
	return pids, err == nil
}
