package meter

import (
	"bytes"
	"context"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-dev/muster"
)

// clockTicks is the kernel's unit of time in /proc, a second's part on every system that
// Go runs on.
const clockTicks = 100

// processes reads /proc/PID/stat of all processes. Those that end meanwhile, or
// are hidden from this user, are left out.
func processes(context.Context) []process {
	d, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer d.Close()
	names, _ := d.Readdirnames(-1) // what was read counts
	t := make([]process, 0, len(names))
	var buf [1024]byte
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if b, err := readSmall("/proc/"+name+"/stat", buf[:]); err == nil {
			if p, ok := parseStat(pid, b); ok {
				t = append(t, p)
			}
		}
	}
	return t
}

// processOf reads what is wanted of one process. It reports false if it has ended.
func processOf(_ context.Context, pid int, fields processFields) (process, bool) {
	if !fields.load {
		p := process{pid: pid, read: -1, written: -1}
		if fields.transfers {
			p.read, p.written = ioBytes(pid)
		}
		return p, true
	}
	var buf [1024]byte
	b, err := readSmall("/proc/"+strconv.Itoa(pid)+"/stat", buf[:])
	if err != nil {
		return process{}, false
	}
	p, ok := parseStat(pid, b)
	if !ok {
		return process{}, false
	}
	return p.withDetail(), true
}

// parseStat reads /proc/PID/stat, see proc_pid_stat(5).
func parseStat(pid int, b []byte) (process, bool) {
	i := bytes.LastIndexByte(b, ')') // the name before it may hold anything
	if i < 0 {
		return process{}, false
	}
	f := bytes.Fields(b[i+1:])
	const state = 3 // the number of the first field behind the name
	if len(f) <= 22-state {
		return process{}, false
	}
	field := func(n int) int64 {
		v, _ := strconv.ParseInt(string(f[n-state]), 10, 64) // 0 if the kernel says nonsense
		return v
	}
	p := process{
		pid: pid, parent: int(field(4)), group: int(field(5)), session: int(field(6)),
		cpu: time.Duration(field(14)+field(15)) * (time.Second / clockTicks), threads: int(field(20)), start: uint64(field(22)),
	}
	return p, f[0][0] != 'Z'
}

// withDetail adds what only those are asked for that are measured.
func (p process) withDetail() process {
	dir := "/proc/" + strconv.Itoa(p.pid)
	var buf [512]byte
	if b, err := readSmall(dir+"/statm", buf[:]); err == nil {
		p.memory = parseStatm(b)
	}
	p.read, p.written = ioBytes(p.pid)
	return p
}

// ioBytes returns what a process read and wrote, -1 where that is hidden.
func ioBytes(pid int) (read, written muster.Size) {
	var buf [512]byte
	b, err := readSmall("/proc/"+strconv.Itoa(pid)+"/io", buf[:])
	if err != nil {
		return -1, -1
	}
	return parseIO(b)
}

// parseStatm reads /proc/PID/statm: size, resident, shared, … in pages.
func parseStatm(b []byte) muster.Size {
	f := bytes.Fields(b)
	if len(f) < 3 {
		return 0
	}
	resident, _ := strconv.ParseInt(string(f[1]), 10, 64) // 0 if the kernel says nonsense
	shared, _ := strconv.ParseInt(string(f[2]), 10, 64)
	return muster.Size(max(0, resident-shared)) * muster.Size(os.Getpagesize())
}

// parseIO reads /proc/PID/io.
func parseIO(b []byte) (read, written muster.Size) {
	read, written = -1, -1
	for line := range bytes.Lines(b) {
		name, value, _ := bytes.Cut(line, []byte(": "))
		n, err := strconv.ParseInt(string(bytes.TrimSpace(value)), 10, 64)
		if err != nil {
			continue
		}
		switch string(name) {
		case "read_bytes":
			read = muster.Size(n)
		case "write_bytes":
			written = muster.Size(n)
		}
	}
	return read, written
}

// readSmall reads what fits of a file of /proc.
func readSmall(path string, buf []byte) ([]byte, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(fd) }()
	n, err := unix.Read(fd, buf)
	return buf[:max(n, 0)], err
}
