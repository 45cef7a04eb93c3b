package kin

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

// Kin tracks the main processes of tasks, which are children of this process, and
// ends what they leave. All methods may be called at the same time.
type Kin struct {
	self, group, session int
	boot                 string

	all      shared[processes]
	children [2]shared[[]int] // see candidates: that may lack one, and that are sure

	started *forks

	mu      sync.Mutex
	emptied [2][]run.Pid // attempts since the last Sweep, and since the one before
}

// forks are the main processes that this process has started and not reaped yet.
type forks struct {
	mu       sync.Mutex
	starting map[chan struct{}]bool // forks under way, whose processes are not in live yet; closed at their end
	live     map[int]uint64         // main processes that run, and their start in ticks
}

// ofProcess is shared by all Kin of this process: the kernel has one list of children for a process, and without it one worker
// would reap the tasks of another that runs in the same process.
var ofProcess = &forks{starting: map[chan struct{}]bool{}, live: map[int]uint64{}}

// remove forgets a main process that has been reaped.
func (f *forks) remove(pid int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.live, pid)
}

const prSetChildSubreaper = 36 // prctl(2)

// New makes this process the reaper of what its descendants leave.
func New(log *slog.Logger) *Kin {
	k := &Kin{self: os.Getpid(), group: syscall.Getpgrp(), started: ofProcess}
	k.all.reader = readProcesses
	for i := range k.children {
		k.children[i].reader = func() []int { return k.candidates(i == sure) }
	}
	if st, err := readStat(k.self); err == nil {
		k.session = st.session
	}
	k.boot = BootID()
	shutFiles()
	if _, _, errno := syscall.RawSyscall6(syscall.SYS_PRCTL, prSetChildSubreaper, 1, 0, 0, 0, 0); errno != 0 {
		log.Warn("daemons that tasks leave behind may survive: this process cannot become their reaper", slog.Any("error", errno))
	}
	return k
}

// shutFiles keeps from tasks the files that whoever started this process left open
// for it. Those that it opens itself are never passed on.
func shutFiles() {
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return // no /proc: there is no telling
	}
	for _, f := range files {
		if fd := number([]byte(f.Name())); fd > 2 {
			syscall.CloseOnExec(fd)
		}
	}
}

// Start calls fork, which starts a main process in a session of its own, with
// mark in its environment, and takes note of it. Until then nothing takes the new
// process for an orphan.
func (k *Kin) Start(mark string, fork func() (pid int, err error)) (p run.Pid, err error) {
	p = run.Pid{BootID: k.boot, Mark: mark}
	done := make(chan struct{})
	f := k.started
	f.mu.Lock()
	f.starting[done] = true
	f.mu.Unlock()
	defer func() { // also if fork panics
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.starting, done)
		if p.PID > 0 {
			f.live[p.PID] = p.StartTicks
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
func (k *Kin) Kill(p run.Pid) {
	all := k.all.read()
	killGroup(p.PID)
	for _, st := range all.descendants(p.PID) {
		kill(st)
	}
	strangers, _ := k.strangers(sure)
	for _, st := range strangers {
		if k.belongs(st, p, false) {
			all.killTree(st)
		}
	}
}

// Ended is called when the main process has exited, and has been reaped or is
// about to be by the caller. It kills what the attempt left and reaps what was
// orphaned, and returns how many of its processes still live after the time given:
// 0 unless the kernel cannot end them.
func (k *Kin) Ended(p run.Pid, atMost time.Duration) int {
	k.started.remove(p.PID)
	for pause, waited := time.Millisecond, time.Duration(0); ; pause *= 2 {
		left := 0
		var all processes // are read if there is something to kill
		strangers, calm := k.strangers(sure)
		for _, st := range strangers {
			mine := k.belongs(st, p, calm)
			switch {
			case !mine && !calm && k.orphan(st) && waited < calmWait:
				left++ // or a task that is being started: look again
			case st.state == 'Z' && (mine || calm && k.orphan(st)):
				// Nobody else waits for it: see the package comment.
				_, _ = syscall.Wait4(st.pid, nil, syscall.WNOHANG, nil)
			case mine:
				if all == nil {
					all = k.all.read()
				}
				all.killTree(st)
				left++
			}
		}
		if left == 0 || waited >= atMost {
			return left
		}
		pause = min(pause, 100*time.Millisecond)
		time.Sleep(pause)
		waited += pause
	}
}

// Emptied is Ended for an attempt whose control groups are empty: only a process that escaped from them can be
// left, and Sweep ends it. So its end does not cost a look at all children.
func (k *Kin) Emptied(p run.Pid) {
	k.started.remove(p.PID)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.emptied[0] = append(k.emptied[0], p)
}

// Sweep ends what attempts that were Emptied have left, and reaps what was orphaned. It is to be called every second
// or so.
func (k *Kin) Sweep() {
	k.mu.Lock()
	ended := slices.Concat(k.emptied[0], k.emptied[1]) // twice, for a quick look may miss one
	k.emptied[1], k.emptied[0] = k.emptied[0], nil
	k.mu.Unlock()
	var all processes
	list, calm := k.strangers(quick)
	for _, st := range list {
		switch {
		case st.state == 'Z' && calm && k.orphan(st):
			_, _ = syscall.Wait4(st.pid, nil, syscall.WNOHANG, nil) // nobody else waits for it
		case st.state != 'Z' && slices.ContainsFunc(ended, func(p run.Pid) bool { return k.belongs(st, p, calm) }):
			if all == nil {
				all = k.all.read()
			}
			all.killTree(st)
		}
	}
}

// calmWait is how long is waited for the end of starts under way: then an
// orphan can be told from a task that has just been started.
const calmWait = 20 * time.Millisecond

// How children are listed: quick may leave one out while others are reaped.
const (
	quick = 0
	sure  = 1
)

// strangers lists the children of this process that are no known main process. calm
// reports that none of them is one that is being started. how is quick or sure.
func (k *Kin) strangers(how int) (list []stat, calm bool) {
	children := k.children[how].read()
	unknown, starting := k.unknown(children)
	calm = true
	if len(unknown) > 0 && len(starting) > 0 {
		calm = await(starting, calmWait)
		unknown, _ = k.unknown(children)
	}
	for _, pid := range unknown {
		if st, err := readStat(pid); err == nil && st.parent == k.self && st.group != k.group {
			list = append(list, st)
		}
	}
	return list, calm
}

// unknown returns those that are no known main process, and the forks that are under way.
func (k *Kin) unknown(children []int) (pids []int, starting []chan struct{}) {
	f := k.started
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, pid := range children {
		if _, known := f.live[pid]; !known {
			pids = append(pids, pid)
		}
	}
	return pids, slices.Collect(maps.Keys(f.starting))
}

// await waits until all are closed, and reports false if that takes longer than atMost.
func await(all []chan struct{}, atMost time.Duration) bool {
	late := time.NewTimer(atMost)
	defer late.Stop()
	for _, c := range all {
		select {
		case <-c:
		case <-late.C:
			return false
		}
	}
	return true
}

// belongs reports whether a stranger is of p's attempt. With ended, which says
// that p's main process is gone, unmarked orphans count that can be nobody else's.
func (k *Kin) belongs(st stat, p run.Pid, ended bool) bool {
	if st.pid == p.PID {
		return false // not reaped yet: its starter does that
	}
	if st.group == p.PID || st.session == p.PID {
		return true
	}
	if st.state != 'Z' && marked(st.pid, p.Mark) { // what has ended has no environment any more
		return true
	}
	return ended && k.orphan(st) && st.start >= p.StartTicks && !marked(st.pid, "MUSTER_OUT=") && k.nobodyElses(st)
}

// orphan reports whether a child of this process cannot have been started by it:
// a worker starts its tools in its own session, and a shim has none.
func (k *Kin) orphan(st stat) bool {
	return st.session != k.session || st.pid != st.group
}

func (k *Kin) nobodyElses(st stat) bool {
	k.started.mu.Lock()
	defer k.started.mu.Unlock()
	for _, start := range k.started.live {
		if start <= st.start {
			return false
		}
	}
	return true
}

// signal sends a signal to p's process group and to everything that descends from p
// or has its mark.
func (k *Kin) signal(p run.Pid, sig syscall.Signal) {
	if p.PID > 1 {
		_ = syscall.Kill(-p.PID, sig) // ESRCH: it has just ended
	}
	all := k.all.read()
	for _, st := range all.descendants(p.PID) {
		signalTo(st, sig)
	}
	strangers, _ := k.strangers(sure)
	for _, st := range strangers {
		if !k.belongs(st, p, false) {
			continue
		}
		for _, d := range append(all.descendants(st.pid), st) {
			signalTo(d, sig)
		}
	}
}

// Freeze stops all of p, or lets it go on. What is forked while it looks is caught by
// a second look.
func (k *Kin) Freeze(p run.Pid, on bool) {
	sig := syscall.SIGCONT
	if on {
		sig = syscall.SIGSTOP
	}
	k.signal(p, sig)
	k.signal(p, sig)
}

// Myself names this process.
func (k *Kin) Myself() run.Pid {
	p := run.Pid{PID: k.self, BootID: k.boot}
	if st, err := readStat(k.self); err == nil {
		p.StartTicks = st.start
	}
	return p
}

// Below reports whether a process descends from another one. One that is gone
// counts as if it did.
func Below(pid, top int) bool {
	for pid > 1 && pid != top {
		st, err := readStat(pid)
		if err != nil {
			return true
		}
		pid = st.parent
	}
	return pid == top
}

// Reap waits for the children that this process did not start and that have ended:
// what a shim that was killed had started comes to the worker.
func (k *Kin) Reap() {
	list, calm := k.strangers(quick)
	for _, st := range list {
		if calm && st.state == 'Z' && k.orphan(st) {
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
			st.parent = number(f)
		case 5:
			st.group = number(f)
		case 6:
			st.session = number(f)
		case 22:
			st.start = uint64(number(f))
			return st, nil
		}
	}
	return stat{}, errors.New("unexpected form of /proc/PID/stat")
}

func number(b []byte) int {
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
	for looks, bare := 0, 0; looks < 2000 && bare < 3; looks++ {
		env, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
		switch {
		case err != nil || len(env) > 0:
			return env
		case loads(pid):
			time.Sleep(time.Millisecond)
		default:
			bare++ // or the call returned just now
		}
	}
	return nil
}

// loads reports whether a process is within execve(2): it has its new memory, and no environment in it
// yet. One that was started without an environment has the place of it (proc_pid_stat(5), env_end), and threads of
// the kernel have no program.
func loads(pid int) bool {
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
