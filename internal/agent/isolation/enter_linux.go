package isolation

import (
	"errors"
	"os"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/isolation/cgroup"
	"github.com/muster-dev/muster/internal/agent/isolation/landlock"
	"github.com/muster-dev/muster/internal/agent/isolation/netns"
	"github.com/muster-dev/muster/internal/agent/isolation/seccomp"
	"github.com/muster-dev/muster/internal/agent/isolation/view"
	"github.com/muster-dev/muster/internal/agent/run"
)

// steps are what the thread that forks a task enters, in an order in which none prevents the next. Each does nothing if the task does
// not need it; its error is a *run.TaskError.
var steps = []func(*spawner) error{
	(*spawner).enterCgroups,
	(*spawner).enterView,
	(*spawner).setUmask,
	(*spawner).enterNetwork,
	(*spawner).setNoNewPrivileges,
	(*spawner).dropCapabilities,
	(*spawner).enterSandbox,
	(*spawner).enterSeccomp,
}

// setupError is the error of a worker that cannot isolate a task as configured.
func setupError(what string, err error) error {
	return run.Failf(muster.WorkerInternal, "%s: %w", what, err)
}

func (s *spawner) enterCgroups() error {
	for i := range s.c.Cgroups {
		if err := s.joinCgroup(&s.c.Cgroups[i]); err != nil {
			return err
		}
	}
	return nil
}

// joinCgroup enters a group: in version 1 this thread does, in version 2 the cloned process.
func (s *spawner) joinCgroup(g *run.Cgroup) (err error) {
	if g.Unified {
		s.attr.CgroupFD, err = unix.Open(g.Path, unix.O_DIRECTORY|unix.O_RDONLY|unix.O_CLOEXEC, 0)
		s.attr.UseCgroupFD = err == nil
	} else {
		err = cgroup.Enter(g)
	}
	if err != nil {
		return setupError("cannot enter the task's control group "+g.Path, err)
	}
	return nil
}

func (s *spawner) enterView() error {
	switch {
	case s.c.View == nil:
		return nil
	case s.c.IPC != nil && s.p.Task != nil:
		if err := view.Join(s.p.Task); err != nil {
			return setupError("cannot enter the task's view of the machine", err)
		}
		return nil
	}
	if err := view.Enter(s.c.View); err != nil {
		return setupError("cannot create the task's view of the machine", err)
	}
	if s.c.IPC == nil {
		return nil
	}
	if err := view.OwnIPC(s.c.IPC); err != nil {
		return setupError("cannot create the task's own shared memory", err)
	}
	return nil
}

func (s *spawner) setUmask() error {
	if s.c.User == nil || !s.c.User.GroupWritable {
		return nil
	}
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return setupError("cannot set the task's umask", err)
	}
	unix.Umask(0o002) // of this thread only
	return nil
}

// enterNetwork enters a running task's network or a new one, or prepares a fork that creates one.
func (s *spawner) enterNetwork() error {
	switch {
	case !s.c.NoNet:
		return nil
	case s.p.Network != nil:
		if err := unix.Setns(int(s.p.Network.Fd()), unix.CLONE_NEWNET); err != nil {
			return setupError("this worker has no privileges to enter the task's network", err)
		}
		return nil
	}
	if err := netns.Unshare(); err != nil {
		return s.needUserNamespace(err)
	}
	if len(s.c.AllowHosts) == 0 {
		return nil
	}
	var err error
	if s.listenerFD, err = netns.ListenFD(); err != nil {
		return setupError("the proxy of the task's network cannot listen", err)
	}
	return nil
}

// needUserNamespace prepares a fork that creates a network together with a user namespace: denied is why it cannot be created without.
// The parent writes the namespace's user map.
func (s *spawner) needUserNamespace(denied error) error {
	s.denied = denied
	s.attr.Cloneflags |= unix.CLONE_NEWUSER | unix.CLONE_NEWNET
	s.attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getuid(), HostID: os.Getuid(), Size: 1}}
	s.attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getgid(), HostID: os.Getgid(), Size: 1}}
	if len(s.c.AllowHosts) > 0 || len(s.p.NSInit) > 0 { // else the loopback device stays down
		if err := s.useNSInit(); err != nil {
			return setupError("cannot set up the task's network", err)
		}
	}
	if s.sandbox != nil {
		extended := *s.sandbox
		extended.Write = append(slices.Clip(extended.Write), "/proc")
		if s.nsinit != nil {
			extended.Read = append(slices.Clip(extended.Read), s.p.Path)
		}
		s.sandbox = &extended
	}
	return nil
}

func (s *spawner) setNoNewPrivileges() error {
	if !s.c.NoNewPrivileges && !s.c.Seccomp && s.sandbox == nil {
		return nil
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return setupError("cannot set no_new_privs", err)
	}
	return nil
}

func (s *spawner) dropCapabilities() error {
	if !s.c.NoNewPrivileges || os.Geteuid() != 0 || s.c.User == nil && s.sandbox == nil {
		return nil
	}
	if s.c.User != nil {
		return dropCapabilities(nil)
	}
	return dropCapabilities(keptCapabilities)
}

func (s *spawner) enterSandbox() error {
	if s.sandbox == nil {
		return nil
	}
	if err := landlock.Enter(s.sandbox, view.Key(s.c.View)); err != nil {
		return setupError("cannot enter the task's sandbox", err)
	}
	return nil
}

// enterSeccomp enters the filter that allows no more than the fork needs.
func (s *spawner) enterSeccomp() error {
	if !s.c.Seccomp {
		return nil
	}
	filter := seccomp.Default
	switch {
	case s.denied != nil:
		filter = seccomp.AllowNamespaces // netns.Init enters the default one
	case s.attr.UseCgroupFD:
		filter = seccomp.AllowClone3
	}
	if err := seccomp.Enter(filter); err != nil {
		return setupError("cannot enter the task's filter of system calls", err)
	}
	return nil
}

// keptCapabilities are the capabilities of a task that runs as root in a sandbox: those for its own files and processes. Without the
// others it cannot load modules, change clocks, networks or mounts, capture the machine's traffic, or leave the sandbox.
var keptCapabilities = []int{
	unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_FOWNER, unix.CAP_FSETID, unix.CAP_KILL, unix.CAP_SETGID,
	unix.CAP_SETUID, unix.CAP_NET_BIND_SERVICE,
}

// dropCapabilities drops all other capabilities of the programs that this thread executes. The thread itself keeps them until
// then, so that it can change its user.
func dropCapabilities(kept []int) error {
	if !capable(unix.CAP_SETPCAP) {
		return nil // the worker was given few capabilities on purpose
	}
	head, sets, err := capabilities()
	if err != nil {
		return setupError("cannot read the task's capabilities", err)
	}
	for i := range unix.CAP_LAST_CAP + 1 {
		if slices.Contains(kept, i) {
			continue
		}
		sets[i/32].Inheritable &^= 1 << (i % 32)
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(i), 0, 0, 0); err != nil && !errors.Is(err, unix.EINVAL) { // EINVAL: unknown to this kernel
			return setupError("cannot drop the task's capabilities", err)
		}
	}
	if err := unix.Capset(head, &sets[0]); err != nil {
		return setupError("cannot drop the task's capabilities", err)
	}
	return nil
}

func capabilities() (*unix.CapUserHeader, *[2]unix.CapUserData, error) {
	head := &unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	err := unix.Capget(head, &sets[0])
	return head, &sets, err
}

// capable reports whether this thread has a capability.
func capable(capability int) bool {
	_, sets, err := capabilities()
	return err == nil && sets[capability/32].Effective&(1<<(capability%32)) != 0
}
