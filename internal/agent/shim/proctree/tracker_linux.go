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

	"github.com/muster-dev/muster/internal/agent/run"
)

// Tracker tracks the main processes of tasks, which are children of this process, and
// ends what they leave. All methods may be called at the same time.
type Tracker struct {
	self, pgid, sid int
	bootID          string

	procs    coalescer[processes]
	children [2]coalescer[[]int] // see candidates: that may lack one, and that are sure

	table *childTable

	mu       sync.Mutex
	deferred [2][]run.Pid // attempts since the last Sweep, and since the one before
}

// childTable are the main processes that this process has started and not reaped yet.
type childTable struct {
	mu       sync.Mutex
	starting map[chan struct{}]bool // forks under way, whose processes are not in live yet; closed at their end
	running  map[int]uint64         // main processes that run, and their start in ticks
}

// processChildren is shared by all Kin of this process: the kernel has one list of children for a process, and without it one worker
// would reap the tasks of another that runs in the same process.
var processChildren = &childTable{starting: map[chan struct{}]bool{}, running: map[int]uint64{}}

// remove forgets a main process that has been reaped.
func (f *childTable) remove(pid int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.running, pid)
}

const prSetChildSubreaper = 36 // prctl(2)

// New makes this process the reaper of what its descendants leave.
func New(log *slog.Logger) *Tracker {
	t := &Tracker{self: os.Getpid(), pgid: syscall.Getpgrp(), table: processChildren}
	t.procs.load = readProcesses
	for i := range t.children {
		t.children[i].load = func() []int { return t.listChildren(i == exact) }
	}
	if st, err := readStat(t.self); err == nil {
		t.sid = st.session
	}
	t.bootID = BootID()
	closeInheritedOnExec()
	if _, _, errno := syscall.RawSyscall6(syscall.SYS_PRCTL, prSetChildSubreaper, 1, 0, 0, 0, 0); errno != 0 {
		log.Warn("daemons that tasks leave behind may survive: this process cannot become their reaper", slog.Any("error", errno))
	}
	return t
}

// closeInheritedOnExec keeps from tasks the files that whoever started this process left open
// for it. Those that it opens itself are never passed on.
func closeInheritedOnExec() {
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return // no /proc: there is no telling
	}
	for _, f := range files {
		if fd := parseDecimal([]byte(f.Name())); fd > 2 {
			syscall.CloseOnExec(fd)
		}
	}
}

// Start calls fork, which starts a main process in a session of its own, with
// mark in its environment, and takes note of it. Until then nothing takes the new
// process for an orphan.
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
	if st, err := readStat(pid); err == nil {
		p.StartTicks = st.start
	}
	return p, nil
}

// Kill ends p's process group and everything that descends from p or has its
// mark. It returns at once. p must not have been reaped.
func (t *Tracker) Kill(p run.Pid) {
	procs := t.procs.get()
	killGroup(p.PID)
	for _, st := range procs.descendants(p.PID) {
		kill(st)
	}
	children, _ := t.untrackedChildren(exact)
	for _, st := range children {
		if t.belongs(st, p, false) {
			procs.killTree(st)
		}
	}
}

// Cleanup is called when the main process has exited, and has been reaped or is
// about to be by the caller. It kills what the attempt left and reaps what was
// orphaned, and returns how many of its processes still live after the time given:
// 0 unless the kernel cannot end them.
func (t *Tracker) Cleanup(p run.Pid, timeout time.Duration) int {
	t.table.remove(p.PID)
	for pause, waited := time.Millisecond, time.Duration(0); ; pause *= 2 {
		remaining := 0
		var procs processes // are read if there is something to kill
		children, quiescent := t.untrackedChildren(exact)
		for _, st := range children {
			belongs := t.belongs(st, p, quiescent)
			switch {
			case !belongs && !quiescent && t.isReparented(st) && waited < pendingStartTimeout:
				remaining++ // or a task that is being started: look again
			case st.state == 'Z' && (belongs || quiescent && t.isReparented(st)):
				// Nobody else waits for it: see the package comment.
				_, _ = syscall.Wait4(st.pid, nil, syscall.WNOHANG, nil)
			case belongs:
				if procs == nil {
					procs = t.procs.get()
				}
				procs.killTree(st)
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

// CleanupLater is Ended for an attempt whose control groups are empty: only a process that escaped from them can be
// left, and Sweep ends it. So its end does not cost a look at all children.
func (t *Tracker) CleanupLater(p run.Pid) {
	t.table.remove(p.PID)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.deferred[0] = append(t.deferred[0], p)
}

// Sweep ends what attempts that were Emptied have left, and reaps what was orphaned. It is to be called every second
// or so.
func (t *Tracker) Sweep() {
	t.mu.Lock()
	ended := slices.Concat(t.deferred[0], t.deferred[1]) // twice, for a quick look may miss one
	t.deferred[1], t.deferred[0] = t.deferred[0], nil
	t.mu.Unlock()
	var procs processes
	children, quiescent := t.untrackedChildren(approximate)
	for _, st := range children {
		switch {
		case st.state == 'Z' && quiescent && t.isReparented(st):
			_, _ = syscall.Wait4(st.pid, nil, syscall.WNOHANG, nil) // nobody else waits for it
		case st.state != 'Z' && slices.ContainsFunc(ended, func(p run.Pid) bool { return t.belongs(st, p, quiescent) }):
			if procs == nil {
				procs = t.procs.get()
			}
			procs.killTree(st)
		}
	}
}

// pendingStartTimeout is how long is waited for the end of starts under way: then an
// orphan can be told from a task that has just been started.
const pendingStartTimeout = 20 * time.Millisecond

// How children are listed: quick may leave one out while others are reaped.
const (
	approximate = 0
	exact       = 1
)

// untrackedChildren lists the children of this process that are no known main process. calm
// reports that none of them is one that is being started. how is quick or sure.
func (t *Tracker) untrackedChildren(mode int) (list []stat, quiescent bool) {
	children := t.children[mode].get()
	pids, starting := t.untracked(children)
	quiescent = true
	if len(pids) > 0 && len(starting) > 0 {
		quiescent = waitAll(starting, pendingStartTimeout)
		pids, _ = t.untracked(children)
	}
	for _, pid := range pids {
		if st, err := readStat(pid); err == nil && st.parent == t.self && st.group != t.pgid {
			list = append(list, st)
		}
	}
	return list, quiescent
}

// untracked returns those that are no known main process, and the forks that are under way.
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

// waitAll waits until all are closed, and reports false if that takes longer than atMost.
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

// belongs reports whether a stranger is of p's attempt. With ended, which says
// that p's main process is gone, unmarked orphans count that can be nobody else's.
func (t *Tracker) belongs(st stat, p run.Pid, mainExited bool) bool {
	if st.pid == p.PID {
		return false // not reaped yet: its starter does that
	}
	if st.group == p.PID || st.session == p.PID {
		return true
	}
	if st.state != 'Z' && hasEnvTag(st.pid, p.EnvTag) { // what has ended has no environment any more
		return true
	}
	return mainExited && t.isReparented(st) && st.start >= p.StartTicks && !hasEnvTag(st.pid, "MUSTER_OUT=") && t.noOtherOwner(st)
}

// isReparented reports whether a child of this process cannot have been started by it:
// a worker starts its tools in its own session, and a shim has none.
func (t *Tracker) isReparented(st stat) bool {
	return st.session != t.sid || st.pid != st.group
}

func (t *Tracker) noOtherOwner(st stat) bool {
	t.table.mu.Lock()
	defer t.table.mu.Unlock()
	for _, start := range t.table.running {
		if start <= st.start {
			return false
		}
	}
	return true
}

// signal sends a signal to p's process group and to everything that descends from p
// or has its mark.
func (t *Tracker) signal(p run.Pid, sig syscall.Signal) {
	if p.PID > 1 {
		_ = syscall.Kill(-p.PID, sig) // ESRCH: it has just ended
	}
	procs := t.procs.get()
	for _, st := range procs.descendants(p.PID) {
		signalTo(st, sig)
	}
	children, _ := t.untrackedChildren(exact)
	for _, st := range children {
		if !t.belongs(st, p, false) {
			continue
		}
		for _, d := range append(procs.descendants(st.pid), st) {
			signalTo(d, sig)
		}
	}
}

// Freeze stops all of p, or lets it go on. What is forked while it looks is caught by
// a second look.
func (t *Tracker) Freeze(p run.Pid, on bool) {
	sig := syscall.SIGCONT
	if on {
		sig = syscall.SIGSTOP
	}
	t.signal(p, sig)
	t.signal(p, sig)
}

// Self names this process.
func (t *Tracker) Self() run.Pid {
	p := run.Pid{PID: t.self, BootID: t.bootID}
	if st, err := readStat(t.self); err == nil {
		p.StartTicks = st.start
	}
	return p
}

// IsDescendant reports whether a process descends from another one. One that is gone
// counts as if it did.
func IsDescendant(pid, ancestor int) bool {
	for pid > 1 && pid != ancestor {
		st, err := readStat(pid)
		if err != nil {
			return true
		}
		pid = st.parent
	}
	return pid == ancestor
}

// Reap waits for the children that this process did not start and that have ended:
// what a shim that was killed had started comes to the worker.
func (t *Tracker) Reap() {
	children, quiescent := t.untrackedChildren(approximate)
	for _, st := range children {
		if quiescent && st.state == 'Z' && t.isReparented(st) {
			_, _ = syscall.Wait4(st.pid, nil, syscall.WNOHANG, nil) // nobody else waits for it
		}
	}
}

// kill kills one process unless its number was given to another one meanwhile.
func kill(st stat) { signalTo(st, syscall.SIGKILL) }

// signalTo sends a signal to a process, and never to another one that was given its number.
func signalTo(st stat, sig syscall.Signal) {
	fd, err := unix.PidfdOpen(st.pid, 0)
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) { // before Linux 5.3, or forbidden by a container's seccomp filter
		if now, err := readStat(st.pid); err == nil && now.start == st.start {
			_ = syscall.Kill(st.pid, sig) // ESRCH: it has just ended
		}
		return
	}
	if err != nil {
		return // it has ended
	}
	defer func() { _ = unix.Close(fd) }()
	if now, err := readStat(st.pid); err == nil && now.start == st.start { // then fd is of st
		_ = unix.PidfdSendSignal(fd, sig, nil, 0) // ESRCH: it has just ended
	}
}

func killGroup(pgid int) {
	if pgid > 1 {
		_ = syscall.Kill(-pgid, syscall.SIGKILL) // ESRCH is the wanted state
	}
}

// stat is what /proc/PID/stat says of a process.
type stat struct {
	pid, parent, group, session int
	state                       byte
	start                       uint64 // ticks since boot
}

func readStat(pid int) (stat, error) {
	var buf [1024]byte
	b, err := readSmall("/proc/"+strconv.Itoa(pid)+"/stat", buf[:])
	if err != nil {
		return stat{}, err
	}
	// The name in parentheses may hold spaces and parentheses itself.
	i := bytes.LastIndexByte(b, ')')
	if i < 0 || len(b) < i+3 {
		return stat{}, errors.New("unexpected form of /proc/PID/stat")
	}
	st := stat{pid: pid, state: b[i+2]}
	field := 2
	for f := range bytes.FieldsSeq(b[i+2:]) {
		field++
		switch field {
		case 4:
			st.parent = parseDecimal(f)
		case 5:
			st.group = parseDecimal(f)
		case 6:
			st.session = parseDecimal(f)
		case 22:
			st.start = uint64(parseDecimal(f))
			return st, nil
		}
	}
	return stat{}, errors.New("unexpected form of /proc/PID/stat")
}

func parseDecimal(b []byte) int {
	n := 0
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0
		}
		n = n*10 + int(c-'0')
	}
	return n
}

// readSmall reads what fits of a file of /proc, without os.File's bookkeeping.
func readSmall(path string, buf []byte) ([]byte, error) {
	fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = syscall.Close(fd) }()
	n, err := syscall.Read(fd, buf)
	return buf[:max(n, 0)], err
}

// environ is the environment with which a process was started, as far as it may be read. It waits
// out an execve(2) that the process is within.
func environ(pid int) []byte {
	for tries, empty := 0, 0; tries < 2000 && empty < 3; tries++ {
		env, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
		switch {
		case err != nil || len(env) > 0:
			return env
		case inExecve(pid):
			time.Sleep(time.Millisecond)
		default:
			empty++ // or the call returned just now
		}
	}
	return nil
}

// inExecve reports whether a process is within execve(2): it has its new memory, and no environment in it
// yet. One that was started without an environment has the place of it (proc_pid_stat(5), env_end), and threads of
// the kernel have no program.
func inExecve(pid int) bool {
	var buf [1024]byte
	b, err := readSmall("/proc/"+strconv.Itoa(pid)+"/stat", buf[:])
	if err != nil {
		return false
	}
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:]) // from the third on
	if len(fields) < 49 || string(fields[48]) != "0" {
		return false
	}
	_, err = os.Readlink("/proc/" + strconv.Itoa(pid) + "/exe")
	return err == nil
}

// BootID names this life of the machine.
func BootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return string(bytes.TrimSpace(b))
}
