package run

import (
	"time"

	"golang.org/x/sys/unix"
)

// BootClock is the clock of leases: the time since boot, including the time that the machine sleeps. It is the same in all processes, and
// cannot be set.
func BootClock() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return time.Duration(time.Now().UnixNano())
	}
	return time.Duration(t.Nano())
}
