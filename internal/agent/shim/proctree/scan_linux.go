package proctree

import (
	"bytes"
	"errors"
	"io"
	"os"
	"slices"
	"strconv"
	"sync"
	"syscall"
)

// processes are all processes of the machine at one time, by their parents.
type processes map[int][]stat

func readProcesses() processes {
	all := processes{}
	for _, pid := range allPIDs() {
		if st, err := readStat(pid); err == nil {
			all[st.parent] = append(all[st.parent], st)
		}
	}
	return all
}

// descendants lists those below pid.
func (all processes) descendants(pid int) []stat {
	var out []stat
	seen := map[int]bool{pid: true}
	queue := []int{pid}
	for len(queue) > 0 {
		children := all[queue[0]]
		queue = queue[1:]
		for _, st := range children {
			if !seen[st.pid] {
				seen[st.pid] = true
				out = append(out, st)
				queue = append(queue, st.pid)
			}
		}
	}
	return out
}

// killTree kills a process and all that descends from it.
func (all processes) killTree(st stat) {
	kill(st)
	for _, d := range all.descendants(st.pid) {
		kill(d)
	}
}

// coalescer reads something of the machine for all who ask at about the same time: to end the tasks of
// a large array costs two readings of all processes, not one for each task.
type coalescer[T any] struct {
	load    func() T
	loading sync.Mutex // held during a reading

	mu    sync.Mutex
	next  *pendingLoad[T] // that has not begun; nil if nobody waits for it
	loads int             // that have begun
}

// pendingLoad is one that several may wait for.
type pendingLoad[T any] struct {
	done   chan struct{}
	result T
}

// get returns what was read at some time after the call. The result is shared, and not to be
// changed.
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
	s.next = nil // who comes now may want to know what was started since
	s.loads++
	s.mu.Unlock()
	defer close(r.done)
	r.result = s.load()
}

// listChildren lists the processes that may be children of this one: those of its main thread, or all
// processes where the kernel does not list these. See mainThreadChildren for sure.
func (t *Tracker) listChildren(exact bool) []int {
	pids, err := mainThreadChildren(t.self, exact)
	if err != nil {
		return allPIDs()
	}
	return pids
}

// mainThreadChildren lists the children of a process's main thread, to which the kernel
// hands all its orphaned descendants. It fails where the kernel does not tell. If it is not sure, one may be
// missing while others are reaped.
func mainThreadChildren(pid int, exact bool) ([]int, error) {
	s := strconv.Itoa(pid)
	fd, err := syscall.Open("/proc/"+s+"/task/"+s+"/children", syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = syscall.Close(fd) }()
	return readChildren(procFile(fd), exact)
}

// procFile is a descriptor of a file of /proc, without os.File's bookkeeping.
type procFile int

func (f procFile) Read(b []byte) (int, error) {
	n, err := syscall.Read(int(f), b)
	return max(n, 0), err
}

func (f procFile) Seek(offset int64, whence int) (int64, error) {
	return syscall.Seek(int(f), offset, whence)
}

// maxStableReads is how often a long list of children is read until two readings are the same.
const maxStableReads = 5

var errChanging = errors.New("the list of children changes while it is read")

// readChildren reads a list of children to its end. The kernel gives out a page at a time, and
// finds the next one by counting: of the children behind it as many are left out as were
// reaped meanwhile before it. But a child that is listed twice was not reaped between: if two readings are the
// same, the first has left out none. So it reads twice to be sure.
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
		if bytes.HasPrefix(second, first) { // new ones are at the end
			return parsePIDs(second), nil
		}
		first = second
	}
	return nil, errChanging
}

// readPages reads to the end and returns how many reads it took.
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

// procPageSize is the least that is asked for at once: what the kernel gives out.
const procPageSize = 4 << 10

func parsePIDs(b []byte) []int {
	var pids []int
	for f := range bytes.FieldsSeq(b) {
		if n := parseDecimal(f); n > 0 {
			pids = append(pids, n)
		}
	}
	return pids
}

func allPIDs() []int {
	d, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer d.Close()
	names, _ := d.Readdirnames(-1) // what was read is the answer
	var pids []int
	for _, n := range names {
		if pid := parseDecimal([]byte(n)); pid > 0 {
			pids = append(pids, pid)
		}
	}
	return pids
}
