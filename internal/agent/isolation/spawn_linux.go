package isolation

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/isolation/cgroup"
	"github.com/muster-dev/muster/internal/agent/isolation/landlock"
	"github.com/muster-dev/muster/internal/agent/isolation/netns"
	"github.com/muster-dev/muster/internal/agent/isolation/view"
	"github.com/muster-dev/muster/internal/agent/run"
)

// oomScore makes the kernel kill tasks rather than the worker and other programs if memory runs out. See
// proc_pid_oom_score_adj(5).
const oomScore = "500"

type spawner struct {
	c         *run.IsolationSpec
	requested *Program
	p         *Program // that is executed: requested, or one that executes it
	attr      syscall.SysProcAttr
	pid       int
	err       error

	listenerFD int           // listens in the program's network; -1 for none
	nsinit     *netns.Helper // if netns.Init executes the program
}

func spawn(c *run.IsolationSpec, p *Program) (pid, pidfd int, err error) {
	pidfd = -1
	s := spawner{c: c, requested: p, p: p, attr: syscall.SysProcAttr{PidFD: &pidfd}, listenerFD: -1}
	if u := c.User; u != nil {
		s.attr.Credential = &syscall.Credential{Uid: u.UID, Gid: u.GID, Groups: u.Groups}
		s.chownPipe(p.Stdout)
		s.chownPipe(p.Stderr)
	}
	if s.unconfined() {
		s.fork()
	} else {
		netns.OnThread(s.enterAndFork)
		s.passListener()
	}
	if s.err != nil {
		return 0, -1, s.explainExecError(s.err)
	}
	if c.NoNewPrivileges { // it is a task
		_ = os.WriteFile("/proc/"+strconv.Itoa(s.pid)+"/oom_score_adj", []byte(oomScore), 0) // best effort
	}
	return s.pid, pidfd, nil
}

// explainExecError explains EACCES if the isolation may be the cause.
func (s *spawner) explainExecError(err error) error {
	if !errors.Is(err, unix.EACCES) || s.c.Sandbox == nil && s.c.User == nil {
		return err
	}
	if _, ok := errors.AsType[*run.TaskError](err); ok {
		return err
	}
	path := s.requested.Path
	if !filepath.IsAbs(path) {
		path = filepath.Join(s.requested.Dir, path)
	}
	if target, e := filepath.EvalSymlinks(path); e == nil {
		path = target
	}
	if b := s.c.Sandbox; b != nil && !insideAny(path, b.Read) && !insideAny(path, b.Write) {
		return run.StartFailf(run.ExitNotExecutable, "cannot execute %s: this worker's sandbox denies tasks access to it; its owner can allow it with --allow-read (%w)", path, err)
	}
	return run.StartFailf(run.ExitNotExecutable,
		"cannot execute %s: this worker's sandbox or the file's mode denies access to it, or to the program that its first line names (%w)", path, err)
}

// chownPipe makes the task's user the owner of a pipe, so that the task can open it as /dev/stderr too.
func (s *spawner) chownPipe(f *os.File) {
	if st, err := f.Stat(); err == nil && st.Mode()&os.ModeNamedPipe != 0 {
		_ = f.Chown(int(s.c.User.UID), int(s.c.User.GID)) // it can be written in any case
	}
}

// unconfined reports whether the program needs no thread that enters something.
func (s *spawner) unconfined() bool {
	c := s.c
	return len(c.Cgroups) == 0 && c.View == nil && c.Sandbox == nil && !c.NoNet && !c.NoNewPrivileges && len(c.Rlimits) == 0
}

// enterAndFork enters all that isolates the task, in an order in which no step prevents the next, and starts it.
func (s *spawner) enterAndFork() {
	c := s.c
	for i := range c.Cgroups {
		if s.err = s.joinCgroup(&c.Cgroups[i]); s.err != nil {
			return
		}
	}
	defer func() {
		if s.attr.UseCgroupFD {
			_ = unix.Close(s.attr.CgroupFD)
		}
	}()
	sandbox, p, fork := c.Sandbox, s.p, s.fork
	if c.View != nil {
		if err := view.Enter(c.View); err != nil {
			s.err = setupError("cannot create the task's view of the machine", err)
			return
		}
	}
	if c.User != nil && c.User.GroupWritable {
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			s.err = setupError("cannot set the task's umask", err)
			return
		}
		unix.Umask(0o002) // of this thread only
	}
	if c.NoNet && p.Network != nil {
		if err := unix.Setns(int(p.Network.Fd()), unix.CLONE_NEWNET); err != nil {
			s.err = setupError("this worker has no privileges to enter the task's network", err)
			return
		}
	} else if c.NoNet {
		err := netns.Unshare()
		if err == nil && len(c.AllowHosts) > 0 {
			if s.listenerFD, err = netns.ListenFD(); err != nil {
				s.err = setupError("the proxy of the task's network cannot listen", err)
				return
			}
		}
		if err != nil {
			// Without privileges, create both in a user namespace at the fork. The parent writes its user map.
			s.attr.Cloneflags |= unix.CLONE_NEWUSER | unix.CLONE_NEWNET
			s.attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getuid(), HostID: os.Getuid(), Size: 1}}
			s.attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getgid(), HostID: os.Getgid(), Size: 1}}
			if len(c.AllowHosts) > 0 || len(p.NSInit) > 0 { // else the loopback device stays down
				if initErr := s.useNSInit(); initErr != nil {
					s.err = setupError("cannot set up the task's network", initErr)
					return
				}
			}
			if sandbox != nil {
				extended := *sandbox
				extended.Write = append(slices.Clip(extended.Write), "/proc")
				if s.nsinit != nil {
					extended.Read = append(slices.Clip(extended.Read), s.p.Path)
				}
				sandbox = &extended
			}
			fork = func() { s.forkInUserNamespace(err) }
		}
	}
	if c.NoNewPrivileges || sandbox != nil {
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			s.err = setupError("cannot set no_new_privs", err)
			return
		}
	}
	if c.NoNewPrivileges && os.Geteuid() == 0 {
		var keep []int
		if c.User == nil {
			keep = keptCapabilities
		}
		if c.User != nil || sandbox != nil {
			if s.err = dropCapabilities(keep); s.err != nil {
				return
			}
		}
	}
	if sandbox != nil {
		if err := landlock.Enter(sandbox, view.Key(c.View)); err != nil {
			s.err = setupError("cannot enter the task's sandbox", err)
			return
		}
	}
	if err := withRlimits(c.Rlimits, fork); err != nil {
		s.err = err
	}
}

// setupError is the error of a worker that cannot isolate a task as configured.
func setupError(what string, err error) error {
	return run.Failf(muster.WorkerInternal, "%s: %w", what, err)
}

func (s *spawner) fork() { s.pid, s.err = forkExec(s.p, &s.attr) }

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

// rlimits are the resources of run.Rlimit names.
var rlimits = map[string]int{"core": unix.RLIMIT_CORE, "nproc": unix.RLIMIT_NPROC}

// rlimitsMu is write-locked while the process has the limits of a child.
var rlimitsMu sync.RWMutex

// withRlimits calls fork while the process has the limits of the child, which inherits them: there is no other way to set them
// before its first instruction.
func withRlimits(limits []run.Rlimit, fork func()) error {
	if len(limits) == 0 {
		rlimitsMu.RLock()
		defer rlimitsMu.RUnlock()
		fork()
		return nil
	}
	rlimitsMu.Lock()
	defer rlimitsMu.Unlock()
	canRaise := capable(unix.CAP_SYS_RESOURCE) // a lowered hard limit can be raised again
	for _, l := range limits {
		resource, ok := rlimits[l.Name]
		if !ok {
			return setupError("unknown limit "+l.Name, errors.ErrUnsupported)
		}
		var old unix.Rlimit
		err := unix.Prlimit(0, resource, nil, &old)
		if err == nil {
			rlimit := unix.Rlimit{Cur: min(l.Value, old.Max), Max: old.Max}
			if canRaise {
				rlimit = unix.Rlimit{Cur: l.Value, Max: l.Value}
			}
			err = unix.Prlimit(0, resource, &rlimit, nil)
		}
		if err != nil {
			return setupError("cannot set the limit "+l.Name, err)
		}
		defer func() { _ = unix.Prlimit(0, resource, &old, nil) }() // the old limit is allowed
	}
	fork()
	return nil
}

// undumpable is whether DisableDumpable was called. The lock is held while that is suspended.
var undumpable struct {
	sync.Mutex
	on bool
}

// forkInUserNamespace starts the process in new namespaces. denied is why it cannot be done without a user namespace.
func (s *spawner) forkInUserNamespace(denied error) {
	undumpable.Lock()
	defer undumpable.Unlock()
	if undumpable.on {
		// The files in /proc of an undumpable process belong to root, including its uid_map.
		_ = unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0)
		defer func() { _ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) }()
	}
	s.fork()
	for _, errno := range []error{syscall.EPERM, syscall.ENOSPC, syscall.EUSERS, syscall.ENOSYS} {
		if errors.Is(s.err, errno) {
			s.err = run.Failf(muster.StartFailed, "this worker cannot give the task a network of its own (network: none or allowlist): "+
				"it has no privileges (%v), and cannot create a user namespace (%w)", denied, s.err)
			return
		}
	}
}

// DisableDumpable prevents other processes of this user from reading this one's environment, memory and files. Privileged processes
// still can.
func DisableDumpable() error {
	undumpable.Lock()
	defer undumpable.Unlock()
	undumpable.on = true
	return os.NewSyscallError("prctl", unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0))
}

// useNSInit changes s so that netns.Init executes its program and brings up its loopback device.
func (s *spawner) useNSInit() error {
	if len(s.p.NSInit) == 0 {
		return errors.New("no init program is configured")
	}
	helper, err := netns.NewHelper()
	if err != nil {
		return err
	}
	s.nsinit = helper
	wrapped := *s.p
	wrapped.Path, wrapped.Argv = s.p.NSInit[0], netns.InitArgv(s.p.NSInit, s.p.Path, s.p.Argv)
	wrapped.extraFile = helper.ChildFile()
	s.p, s.attr.AmbientCaps = &wrapped, []uintptr{unix.CAP_NET_ADMIN}
	return nil
}

// passListener passes the socket in the program's network to OnListener after the fork.
func (s *spawner) passListener() {
	fd := s.listenerFD
	if s.nsinit != nil {
		if s.err != nil {
			s.nsinit.Close()
			return
		}
		var err error
		if fd, err = s.nsinit.Wait(); err != nil {
			s.killAndWait()
			if _, ok := errors.AsType[syscall.Errno](err); ok {
				s.err = err // the program cannot be executed
			} else {
				s.err = setupError("cannot set up the task's network with "+s.p.NSInit[0], err)
			}
		}
	}
	if fd < 0 {
		return
	}
	l, err := netns.FileListener(fd)
	switch {
	case s.err != nil || s.p.OnListener == nil || len(s.c.AllowHosts) == 0:
		if err == nil {
			_ = l.Close()
		}
	case err != nil:
		s.killAndWait()
		s.err = setupError("the proxy of the task's network cannot listen", err)
	default:
		s.p.OnListener(l)
	}
}

// killAndWait kills the forked process, and waits until it has exited.
func (s *spawner) killAndWait() {
	_ = unix.Kill(s.pid, unix.SIGKILL)
	_, _ = waitPID(s.pid)
	_ = unix.Close(*s.attr.PidFD)
}
