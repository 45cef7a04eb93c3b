package xid

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Log reads the messages of the kernel, each once. See the kernel's Documentation/ABI/testing/dev-kmsg.
type Log struct {
	fd  int
	buf []byte
}

// Open opens the log at its beginning, or returns nil if this user may not read it.
func Open() *Log {
	fd, err := unix.Open("/dev/kmsg", unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	return &Log{fd: fd, buf: make([]byte, 8<<10)} // the kernel's longest record
}

// Close closes the log.
func (l *Log) Close() { _ = unix.Close(l.fd) } // nothing was written

// Read calls fn for each new message, with its age.
func (l *Log) Read(fn func(message string, age time.Duration)) {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return
	}
	for range 1 << 20 { // more than any log holds
		n, err := unix.Read(l.fd, l.buf)
		switch {
		case errors.Is(err, unix.EPIPE) || errors.Is(err, unix.EINTR):
			continue // messages were overwritten before they were read
		case err != nil || n <= 0:
			return
		}
		if at, message, ok := parseRecord(string(l.buf[:n])); ok {
			fn(message, time.Duration(now.Nano())-at)
		}
	}
}

// parseRecord parses a record such as "4,891,13520982,-;NVRM: …", whose third field is the time since the start of the machine in
// microseconds.
func parseRecord(record string) (at time.Duration, message string, ok bool) {
	head, message, ok := strings.Cut(record, ";")
	fields := strings.SplitN(head, ",", 4)
	if !ok || len(fields) < 3 {
		return 0, "", false
	}
	us, err := strconv.ParseInt(fields[2], 10, 64)
	if err != nil || us < 0 || us > 1<<50 {
		return 0, "", false
	}
	message, _, _ = strings.Cut(message, "\n")
	return time.Duration(us) * time.Microsecond, message, true
}
