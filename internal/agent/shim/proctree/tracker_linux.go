package proctree

import (
	"bytes"
	"errors"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-dev/muster/internal/agent/procfs"
	"github.com/muster-dev/muster/internal/agent/run"
)

// Tracker tracks the main processes of tasks, which are children of this process, and ends their leftover processes. Its methods may be called
// concurrently.
type Tracker struct {
	self, pgid, sid int
	bootID          string

	procs    coalescer[processes]
	children [2]coalescer[[]int] // approximate and exact: see untrackedChildren

	table *childTable

	mu       sync.Mutex
	deferred [2][]run.Pid // ended attempts since the last Sweep, and since the one before
}

// childTable has the main processes that this process started and has not reaped.
type childTable struct {
	mu       sync.Mutex
	starting map[chan struct{}]bool // forks in progress, whose processes are not in running yet; closed at their end
	running  map[int]uint64         // start times of main processes in ticks, by PID
}

// processChildren is shared by all Trackers: the kernel has one list of children for a process, and a worker must not reap the tasks of another
// one in the same process.
var processChildren = &childTable{starting: map[chan struct{}]bool{}, running: map[int]uint64{}}

func (f *childTable) remove(pid int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.running, pid)
}

const prSetChildSubreaper = 36 // prctl(2)

// New makes this process the subreaper of its descendants.
func New(log *slog.Logger) *Tracker {
	t := &Tracker{self: os.Getpid(), pgid: syscall.Getpgrp(), table: processChildren}
	t.procs.load = readProcesses
	for i := range t.children {
		t.children[i].load = func() []int { return t.listChildren(i == exact) }
	}
	if st, ok := procfs.ReadStat(t.self); ok {
		t.sid = st.Session
	}
	t.bootID = BootID()
	closeInheritedOnExec()
	if _, _, errno := syscall.RawSyscall6(syscall.SYS_PRCTL, prSetChildSubreaper, 1, 0, 0, 0, 0); errno != 0 {
		log.Warn("daemons of tasks may survive: this process cannot become a subreaper", slog.Any("error", errno))
	}
	return t
}

// closeInheritedOnExec keeps files that this process inherited from its tasks. Files that it opens itself are close-on-exec.
func closeInheritedOnExec() {
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return // no /proc
	}
	for _, f := range files {
		if fd, err := strconv.Atoi(f.Name()); err == nil && fd > 2 {
			syscall.CloseOnExec(fd)
		}
	}
}

// Start calls fork, which starts a main process in its own session with envTag in its environment, and tracks it. During the call the new process
// does not count as an orphan.
func (t *Tracker) Start(envTag string, fork func() (pid int, err error)) (p run.Pid, err error) {
	p = run.Pid{BootID: t.bootID, EnvTag: envTag}
	done := make(chan struct{})
	f := t.table
	f.mu.Lock()
	f.starting[done] = true
	f.mu.Unlock()
	defer func() { // also if fork panics
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.starting, done)
		if p.PID > 0 {
			f.running[p.PID] = p.StartTicks
		}
		close(done)
	}()
	pid, err := fork()
	if err != nil {
		return p, err
	}
	p.PID = pid
	if st, ok := procfs.ReadStat(pid); ok {
		p.StartTicks = st.Start
	}
	return p, nil
}

// Release ends the tracking of a process of Start that has been reaped, and leaves the other processes with its tag alone.
func (t *Tracker) Release(p run.Pid) { t.table.remove(p.PID) }

// Kill kills p's process group and every process that descends from p or has its tag. It does not wait. p must not have been reaped.
func (t *Tracker) Kill(p run.Pid) { t.signal(p, syscall.SIGKILL) }

// Cleanup is called when the main process has exited, and has been reaped or is about to be by the caller. It kills the leftover processes of the
// attempt and reaps orphans, and returns how many of its processes still run after timeout: 0 unless the kernel cannot end them.
func (t *Tracker) Cleanup(p run.Pid, timeout time.Duration) int {
	t.table.remove(p.PID)
	for pause, waited := time.Millisecond, time.Duration(0); ; pause *= 2 {
		remaining := 0
		var procs processes // read if there is something to kill
		children, quiescent := t.untrackedChildren(exact)
		for _, st := range children {
			belongs := t.belongs(st, p, quiescent)
			switch {
			case !belongs && !quiescent && t.isReparented(st) && waited < pendingStartTimeout:
				remaining++ // or a task that is being started
			case st.State == 'Z' && (belongs || quiescent && t.isReparented(st)):
				// Nothing else waits for it: see the documentation of package shim.
				_, _ = syscall.Wait4(st.PID, nil, syscall.WNOHANG, nil)
			case belongs:
				if procs == nil {
					procs = t.procs.get()
				}
				procs.signalTree(st, syscall.SIGKILL)
				remaining++
			}
		}
		if remaining == 0 || waited >= timeout {
			return remaining
		}
		pause = min(pause, 100*time.Millisecond)
		time.Sleep(pause)
		waited += pause
	}
}

// CleanupLater is Cleanup for an attempt whose control groups are empty: only a process that escaped from them can be left, and Sweep ends it. It
// does not list the children.
func (t *Tracker) CleanupLater(p run.Pid) {
	t.table.remove(p.PID)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.deferred[0] = append(t.deferred[0], p)
}

// Sweep ends the leftover processes of attempts of CleanupLater, and reaps orphans, which may be those of a killed shim. A shim calls it about
// once per second.
func (t *Tracker) Sweep() {
	t.mu.Lock()
	ended := slices.Concat(t.deferred[0], t.deferred[1]) // twice, since an approximate list may lack one
	t.deferred[1], t.deferred[0] = t.deferred[0], nil
	t.mu.Unlock()
	var procs processes
	children, quiescent := t.untrackedChildren(approximate)
	for _, st := range children {
		switch {
		case st.State == 'Z' && quiescent && t.isReparented(st):
			_, _ = syscall.Wait4(st.PID, nil, syscall.WNOHANG, nil) // nothing else waits for it
		case st.State != 'Z' && slices.ContainsFunc(ended, func(p run.Pid) bool { return t.belongs(st, p, quiescent) }):
			if procs == nil {
				procs = t.procs.get()
			}
			procs.signalTree(st, syscall.SIGKILL)
		}
	}
}

// pendingStartTimeout is how long to wait for forks in progress: then an orphan can be distinguished from a task that was just started.
const pendingStartTimeout = 20 * time.Millisecond

// Modes of listing children: approximate may skip one while others are reaped.
const (
	approximate = 0
	exact       = 1
)

// untrackedChildren lists the children of this process that are not main processes. quiescent reports that none of them is being started.
func (t *Tracker) untrackedChildren(mode int) (list []procfs.Stat, quiescent bool) {
	children := t.children[mode].get()
	pids, starting := t.untracked(children)
	quiescent = true
	if len(pids) > 0 && len(starting) > 0 {
		quiescent = waitAll(starting, pendingStartTimeout)
		pids, _ = t.untracked(children)
	}
	for _, pid := range pids {
		if st, ok := procfs.ReadStat(pid); ok && st.Parent == t.self && st.Group != t.pgid {
			list = append(list, st)
		}
	}
	return list, quiescent
}

// untracked returns the children that are not main processes, and the forks in progress.
func (t *Tracker) untracked(children []int) (pids []int, starting []chan struct{}) {
	f := t.table
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, pid := range children {
		if _, known := f.running[pid]; !known {
			pids = append(pids, pid)
		}
	}
	return pids, slices.Collect(maps.Keys(f.starting))
}

// waitAll waits until all channels are closed, and returns false after timeout.
func waitAll(done []chan struct{}, timeout time.Duration) bool {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	for _, c := range done {
		select {
		case <-c:
		case <-timer.C:
			return false
		}
	}
	return true
}

// belongs reports whether an untracked child belongs to p's attempt. After the main process has exited, orphans without a tag count that can belong
// to no other attempt.
func (t *Tracker) belongs(st procfs.Stat, p run.Pid, mainExited bool) bool {
	if st.PID == p.PID {
		return false // not reaped yet: Child.Wait does that
	}
	if st.Group == p.PID || st.Session == p.PID {
		return true
	}
	if st.State != 'Z' && hasEnvTag(st.PID, p.EnvTag) { // a zombie has no environment
		return true
	}
	return mainExited && t.isReparented(st) && st.Start >= p.StartTicks && !hasEnvTag(st.PID, "MUSTER_OUT=") && t.noOtherOwner(st)
}

// isReparented reports whether a child of this process was not started by it: a worker starts its tools in its own session, and a shim has none.
func (t *Tracker) isReparented(st procfs.Stat) bool {
	return st.Session != t.sid || st.PID != st.Group
}

func (t *Tracker) noOtherOwner(st procfs.Stat) bool {
	t.table.mu.Lock()
	defer t.table.mu.Unlock()
	for _, start := range t.table.running {
		if start <= st.Start {
			return false
		}
	}
	return true
}

// signal sends a signal to p's process group and to every process that descends from p or has its tag.
func (t *Tracker) signal(p run.Pid, sig syscall.Signal) {
	procs := t.procs.get() // first: a process that ends at the signal leaves its children to another parent
	if p.PID > 1 {
		_ = syscall.Kill(-p.PID, sig) // ESRCH: it has just ended
	}
	for _, st := range procs.descendants(p.PID) {
		signalTo(st, sig)
	}
	children, _ := t.untrackedChildren(exact)
	for _, st := range children {
		if t.belongs(st, p, false) {
			procs.signalTree(st, sig)
		}
	}
}

// Freeze stops all processes of p, or continues them. A second round catches what is forked during the first.
func (t *Tracker) Freeze(p run.Pid, on bool) {
	sig := syscall.SIGCONT
	if on {
		sig = syscall.SIGSTOP
	}
	t.signal(p, sig)
	t.signal(p, sig)
}

// Self returns the identity of this process.
func (t *Tracker) Self() run.Pid { return Identify(t.self) }

// IsDescendant reports whether a process descends from another one. An exited process counts as a descendant.
func IsDescendant(pid, ancestor int) bool {
	for pid > 1 && pid != ancestor {
		st, ok := procfs.ReadStat(pid)
		if !ok {
			return true
		}
		pid = st.Parent
	}
	return pid == ancestor
}

// signalTo sends a signal to a process unless its PID was reused.
func signalTo(st procfs.Stat, sig syscall.Signal) {
	fd, err := unix.PidfdOpen(st.PID, 0)
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) { // before Linux 5.3, or forbidden by a container's seccomp filter
		if now, ok := procfs.ReadStat(st.PID); ok && now.Start == st.Start {
			_ = syscall.Kill(st.PID, sig) // ESRCH: it has just ended
		}
		return
	}
	if err != nil {
		return // it has ended
	}
	defer func() { _ = unix.Close(fd) }()
	if now, ok := procfs.ReadStat(st.PID); ok && now.Start == st.Start { // then fd is of st
		_ = unix.PidfdSendSignal(fd, sig, nil, 0) // ESRCH: it has just ended
	}
}

// environ returns the environment with which a process was started, if it is readable. It waits for an execve(2) in progress.
func environ(pid int) []byte {
	for tries, empty := 0, 0; tries < 2000 && empty < 3; tries++ {
		env, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
		switch {
		case err != nil || len(env) > 0:
			return env
		case inExecve(pid):
			time.Sleep(time.Millisecond)
		default:
			empty++ // or execve has just returned
		}
	}
	return nil
}

// inExecve reports whether a process is in execve(2): it has its new memory, without an environment. A process that was started without one has an
// address for it (proc_pid_stat(5), env_end), and kernel threads have no program.
func inExecve(pid int) bool {
	b, err := procfs.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return false
	}
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:]) // from the third field
	if len(fields) < 49 || string(fields[48]) != "0" {
		return false
	}
	_, err = os.Readlink("/proc/" + strconv.Itoa(pid) + "/exe")
	return err == nil
}

// BootID identifies the current boot of the machine.
func BootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return string(bytes.TrimSpace(b))
}
