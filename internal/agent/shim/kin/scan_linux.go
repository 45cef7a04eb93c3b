package kin

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

// scanner reads all processes for all who ask at about the same time: to end the tasks of a
// large array costs two readings, not one for each task.
type scanner struct {
	reading sync.Mutex // held during one

	mu   sync.Mutex
	next *reading // that has not begun; nil if nobody waits for it
	n    int      // that have begun
}

// reading is one that several may wait for.
type reading struct {
	done chan struct{}
	all  processes
}

// scan returns all processes as they were at some time after the call. The result is shared, and not to be
// changed.
func (s *scanner) scan() processes {
	s.mu.Lock()
	r, first := s.next, s.next == nil
	if first {
		r = &reading{done: make(chan struct{})}
		s.next = r
	}
	s.mu.Unlock()
	if first {
		s.read(r)
	}
	<-r.done
	return r.all
}

func (s *scanner) read(r *reading) {
	s.reading.Lock()
	defer s.reading.Unlock()
	s.mu.Lock()
	s.next = nil // who comes now may want to know what was started since
	s.n++
	s.mu.Unlock()
	defer close(r.done)
	r.all = readProcesses()
}

// orphanPIDs lists the children of a process's main thread, to which the kernel
// hands all its orphaned descendants. It fails where the kernel does not tell.
func orphanPIDs(pid int) ([]int, error) {
	s := strconv.Itoa(pid)
	fd, err := syscall.Open("/proc/"+s+"/task/"+s+"/children", syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = syscall.Close(fd) }()
	return readChildren(procFile(fd))
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

// sameTries is how often a long list of children is read until two readings are the same.
const sameTries = 5

var errChanging = errors.New("the list of children changes while it is read")

// readChildren reads a list of children to its end. The kernel gives out a page at a time, and
// finds the next one by counting: of the children behind it as many are left out as were
// reaped meanwhile before it. But a child that is listed twice was not reaped between: if two readings are the
// same, the first has left out none.
func readChildren(f io.ReadSeeker) ([]int, error) {
	first, pages, err := readPages(f)
	if err != nil || pages <= 1 {
		return parsePIDs(first), err
	}
	for range sameTries {
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
	b = make([]byte, 0, pageSize)
	for {
		b = slices.Grow(b, pageSize)
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

// pageSize is the least that is asked for at once: what the kernel gives out.
const pageSize = 4 << 10

func parsePIDs(b []byte) []int {
	var pids []int
	for f := range bytes.FieldsSeq(b) {
		if n := number(f); n > 0 {
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
		if pid := number([]byte(n)); pid > 0 {
			pids = append(pids, pid)
		}
	}
	return pids
}
