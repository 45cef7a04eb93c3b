package proctree

import (
	"bytes"
	"errors"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/muster-dev/muster/internal/agent/procfs"
	"github.com/muster-dev/muster/internal/agent/run"
)

// processes are all processes of the machine at one time, by their parents.
type processes map[int][]procfs.Stat

func readProcesses() processes {
	all := processes{}
	for _, st := range procfs.ReadStats() {
		all[st.Parent] = append(all[st.Parent], st)
	}
	return all
}

func (all processes) descendants(pid int) []procfs.Stat {
	var out []procfs.Stat
	seen := map[int]bool{pid: true}
	queue := []int{pid}
	for len(queue) > 0 {
		children := all[queue[0]]
		queue = queue[1:]
		for _, st := range children {
			if !seen[st.PID] {
				seen[st.PID] = true
				out = append(out, st)
				queue = append(queue, st.PID)
			}
		}
	}
	return out
}

func (all processes) signalTree(st procfs.Stat, sig syscall.Signal) {
	signalTo(st, sig)
	for _, d := range all.descendants(st.PID) {
		signalTo(d, sig)
	}
}

// coalescer shares the result of load between concurrent callers: to end the tasks of a large array costs two readings of all processes, not one
// for each task.
type coalescer[T any] struct {
	load    func() T
	loading sync.Mutex // held during load

	mu    sync.Mutex
	next  *pendingLoad[T] // the load that has not begun, nil for none
	loads int             // number of loads that have begun
}

// pendingLoad is a load with its waiting callers.
type pendingLoad[T any] struct {
	done   chan struct{}
	result T
}

// get returns the result of a load that began after the call. The result is shared and must not be changed.
func (s *coalescer[T]) get() T {
	s.mu.Lock()
	r, first := s.next, s.next == nil
	if first {
		r = &pendingLoad[T]{done: make(chan struct{})}
		s.next = r
	}
	s.mu.Unlock()
	if first {
		s.run(r)
	}
	<-r.done
	return r.result
}

func (s *coalescer[T]) run(r *pendingLoad[T]) {
	s.loading.Lock()
	defer s.loading.Unlock()
	s.mu.Lock()
	s.next = nil // later callers need a later load
	s.loads++
	s.mu.Unlock()
	defer close(r.done)
	r.result = s.load()
}

// listChildren lists the processes that may be children of this one: those of its main thread, or all processes if the kernel does not list
// these. See mainThreadChildren for exact.
func (t *Tracker) listChildren(exact bool) []int {
	pids, err := mainThreadChildren(t.self, exact)
	if err != nil {
		pids = nil
		for _, st := range procfs.ReadStats() {
			pids = append(pids, st.PID)
		}
	}
	return pids
}

// mainThreadChildren lists the children of a process's main thread, which gets all orphaned descendants. It fails if the kernel does not support
// it. If not exact, one may be missing while others are reaped.
func mainThreadChildren(pid int, exact bool) ([]int, error) {
	s := strconv.Itoa(pid)
	fd, err := syscall.Open("/proc/"+s+"/task/"+s+"/children", syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = syscall.Close(fd) }()
	return readChildren(procFile(fd), exact)
}

// procFile is a descriptor of a file in /proc, without os.File's overhead.
type procFile int

func (f procFile) Read(b []byte) (int, error) {
	n, err := syscall.Read(int(f), b)
	return max(n, 0), err
}

func (f procFile) Seek(offset int64, whence int) (int64, error) {
	return syscall.Seek(int(f), offset, whence)
}

// maxStableReads is how often a long list of children is read until two readings agree.
const maxStableReads = 5

var errChanging = errors.New("the list of children changes during the read")

// readChildren reads a list of children to its end. The kernel returns a page at a time, and finds the next one by counting: if children before
// it were reaped meanwhile, as many are skipped after it. But a child that is in two lists was not reaped in between: if two readings agree, the
// first one has skipped none. So an exact list needs two readings.
func readChildren(f io.ReadSeeker, exact bool) ([]int, error) {
	first, pages, err := readPages(f)
	if err != nil || pages <= 1 || !exact {
		return parsePIDs(first), err
	}
	for range maxStableReads {
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return nil, err
		}
		second, _, err := readPages(f)
		if err != nil {
			return nil, err
		}
		if bytes.HasPrefix(second, first) { // new children are at the end
			return parsePIDs(second), nil
		}
		first = second
	}
	return nil, errChanging
}

// readPages reads to the end and returns the number of reads.
func readPages(r io.Reader) (b []byte, pages int, err error) {
	b = make([]byte, 0, procPageSize)
	for {
		b = slices.Grow(b, procPageSize)
		n, err := r.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		switch {
		case errors.Is(err, io.EOF) || err == nil && n == 0:
			return b, pages, nil
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return nil, pages, err
		default:
			pages++
		}
	}
}

// procPageSize is the size of the kernel's pages.
const procPageSize = 4 << 10

func parsePIDs(b []byte) []int {
	var pids []int
	for f := range bytes.FieldsSeq(b) {
		if n, err := strconv.Atoi(string(f)); err == nil {
			pids = append(pids, n)
		}
	}
	return pids
}

// KillOrphans kills what is left of attempts whose shim exited: the process group, if its main process is still the recorded one, and every
// process with the attempt's tag. It never touches a process with a reused PID. It returns an error if some of them still run after 5 seconds.
func KillOrphans(list ...run.Pid) error {
	starts := map[int]uint64{}   // of main processes, by PID
	envTags := map[string]bool{} // a set, because all processes are compared with all attempts
	boot := BootID()
	for _, p := range list {
		if p.BootID != boot {
			continue // the machine was rebooted
		}
		if p.PID > 1 && p.StartTicks != 0 {
			starts[p.PID] = p.StartTicks
		}
		if p.EnvTag != "" {
			envTags[p.EnvTag] = true
		}
	}
	if len(starts) == 0 && len(envTags) == 0 {
		return nil
	}
	for range 50 {
		procs := readProcesses()
		found := false
		for _, children := range procs {
			for _, st := range children {
				isMain := st.Start != 0 && starts[st.PID] == st.Start
				if st.State == 'Z' || st.PID == os.Getpid() || !isMain && !hasAnyEnvTag(st.PID, envTags) {
					continue
				}
				if now, ok := procfs.ReadStat(st.PID); isMain && ok && now.Start == st.Start {
					killGroup(st.PID)
				}
				procs.signalTree(st, syscall.SIGKILL)
				found = true
			}
		}
		if !found {
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	if len(list) == 1 {
		return run.Failf("", "process %d of an earlier attempt survives SIGKILL", list[0].PID)
	}
	return run.Failf("", "processes of earlier attempts survive SIGKILL")
}

// hasEnvTag reports whether a process was started with a tag in its environment. A tag that ends in "=" matches any value.
func hasEnvTag(pid int, envTag string) bool {
	return envTag != "" && hasAnyEnvTag(pid, map[string]bool{envTag: true})
}

// hasAnyEnvTag reports whether a process was started with one of the tags in its environment.
func hasAnyEnvTag(pid int, envTags map[string]bool) bool {
	if len(envTags) == 0 {
		return false
	}
	for entry := range strings.SplitSeq(string(environ(pid)), "\x00") {
		if name, _, ok := strings.Cut(entry, "="); ok && (envTags[entry] || envTags[name+"="]) {
			return true
		}
	}
	return false
}

// Alive reports whether a recorded process, or one with its tag, still runs. It changes nothing.
func Alive(p run.Pid) bool {
	if p.BootID != BootID() {
		return false
	}
	if st, ok := procfs.ReadStat(p.PID); p.PID > 1 && p.StartTicks != 0 && ok && st.Start == p.StartTicks && st.State != 'Z' {
		return true
	}
	if p.EnvTag == "" {
		return false
	}
	for _, st := range procfs.ReadStats() {
		if st.PID != os.Getpid() && st.State != 'Z' && hasEnvTag(st.PID, p.EnvTag) {
			return true
		}
	}
	return false
}

// Identify returns the identity of a running process.
func Identify(pid int) run.Pid {
	p := run.Pid{PID: pid, BootID: BootID()}
	if st, ok := procfs.ReadStat(pid); ok {
		p.StartTicks = st.Start
	}
	return p
}
