package procfs

import (
	"bytes"
	"os"
	"strconv"
	"time"

	"github.com/muster-dev/muster"
)

// clockTicks is the kernel's unit of time in /proc: a hundredth of a second on every system that Go runs on.
const clockTicks = 100

// statSize is enough for /proc/PID/stat, statm and io.
const statSize = 1024

func path(pid int, name string) string { return "/proc/" + strconv.Itoa(pid) + "/" + name }

// ReadStat returns the state of a process. It reports false if the process does not exist or is hidden from this user.
func ReadStat(pid int) (Stat, bool) {
	var buf [statSize]byte
	b, err := readInto(path(pid, "stat"), buf[:])
	if err != nil {
		return Stat{}, false
	}
	return parseStat(pid, b)
}

// ReadStats returns the states of all processes that this user can see.
func ReadStats() []Stat {
	d, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer d.Close()
	names, _ := d.Readdirnames(-1) // what was read before an error counts
	list := make([]Stat, 0, len(names))
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			if st, ok := ReadStat(pid); ok {
				list = append(list, st)
			}
		}
	}
	return list
}

// parseStat parses /proc/PID/stat, see proc_pid_stat(5).
func parseStat(pid int, b []byte) (Stat, bool) {
	i := bytes.LastIndexByte(b, ')') // the name before it may contain anything
	if i < 0 {
		return Stat{}, false
	}
	const state, start = 3, 22 // the numbers of the first field after the name, and of the last one that is used
	var f [start - state + 1][]byte
	n := 0
	for word := range bytes.FieldsSeq(b[i+1:]) {
		if f[n] = word; n == len(f)-1 {
			break
		}
		n++
	}
	if n < len(f)-1 {
		return Stat{}, false
	}
	field := func(n int) int64 {
		v, _ := strconv.ParseInt(string(f[n-state]), 10, 64) // 0 if it is not a number
		return v
	}
	return Stat{
		PID: pid, State: f[0][0], Parent: int(field(4)), Group: int(field(5)), Session: int(field(6)),
		CPU: time.Duration(field(14)+field(15)) * (time.Second / clockTicks), Threads: int(field(20)), Start: uint64(field(start)),
	}, true
}

// Resident returns the memory of a process that is resident and not shared, 0 if it is unknown.
func Resident(pid int) muster.Size {
	var buf [statSize]byte
	b, err := readInto(path(pid, "statm"), buf[:])
	if err != nil {
		return 0
	}
	return parseStatm(b)
}

// parseStatm parses /proc/PID/statm: size, resident, shared, ... in pages.
func parseStatm(b []byte) muster.Size {
	f := bytes.Fields(b)
	if len(f) < 3 {
		return 0
	}
	resident, _ := strconv.ParseInt(string(f[1]), 10, 64) // 0 if it is not a number
	shared, _ := strconv.ParseInt(string(f[2]), 10, 64)
	return muster.Size(max(0, resident-shared)) * muster.Size(os.Getpagesize())
}

// IO returns the bytes that a process read from and wrote to disks, -1 if they are unknown.
func IO(pid int) (read, written muster.Size) {
	var buf [statSize]byte
	b, err := readInto(path(pid, "io"), buf[:])
	if err != nil {
		return -1, -1
	}
	return parseIO(b)
}

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

// Environ returns the environment with which a process was started, nil if this user may not see it.
func Environ(pid int) [][]byte { return readList(pid, "environ") }

// Args returns the command line of a process, nil if it is unknown.
func Args(pid int) [][]byte { return readList(pid, "cmdline") }

func readList(pid int, name string) [][]byte {
	b, err := ReadFile(path(pid, name))
	if err != nil {
		return nil
	}
	return bytes.Split(b, []byte{0})
}
