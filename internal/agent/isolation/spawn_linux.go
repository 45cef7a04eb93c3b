package isolation

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/isolation/netns"
	"github.com/muster-dev/muster/internal/agent/run"
)

// oomScore makes the kernel kill tasks rather than the worker and other programs if memory runs out. See
// proc_pid_oom_score_adj(5).
const oomScore = "500"

type spawner struct {
	c         *run.IsolationSpec
	requested *Program
	p         *Program     // that is executed: requested, or one that executes it
	sandbox   *run.Sandbox // that it enters: c's, or one extended for p
	attr      syscall.SysProcAttr
	pid       int
	err       error

	listenerFD int           // listens in the program's network; -1 for none
	nsinit     *netns.Helper // if netns.Init executes the program
	denied     error         // why the program needs a user namespace for a network of its own; nil if it does not
}

func spawn(c *run.IsolationSpec, p *Program) (pid, pidfd int, err error) {
	pidfd = -1
	s := spawner{c: c, requested: p, p: p, sandbox: c.Sandbox, attr: syscall.SysProcAttr{PidFD: &pidfd}, listenerFD: -1}
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
	return len(c.Cgroups) == 0 && c.View == nil && c.Sandbox == nil && !c.NoNet && !c.NoNewPrivileges && !c.Seccomp && len(c.Rlimits) == 0
}

// enterAndFork enters all that isolates the task, and starts it.
func (s *spawner) enterAndFork() {
	defer func() {
		if s.attr.UseCgroupFD {
			_ = unix.Close(s.attr.CgroupFD)
		}
	}()
	for _, enter := range steps {
		if s.err = enter(s); s.err != nil {
			return
		}
	}
	fork := s.fork
	if s.denied != nil {
		fork = s.forkInUserNamespace
	}
	if err := withRlimits(s.c.Rlimits, fork); err != nil {
		s.err = err
	}
}

func (s *spawner) fork() { s.pid, s.err = forkExec(s.p, &s.attr) }

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

// forkInUserNamespace starts the process in new namespaces.
func (s *spawner) forkInUserNamespace() {
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
				"it has no privileges (%v), and cannot create a user namespace (%w)", s.denied, s.err)
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
	wrapped.Path, wrapped.Argv = s.p.NSInit[0], netns.InitArgv(s.p.NSInit, s.c.Seccomp, s.p.Path, s.p.Argv)
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
