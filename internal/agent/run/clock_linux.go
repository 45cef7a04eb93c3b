package run

import (
	"time"

	"golang.org/x/sys/unix"
)

// BootClock is the time by which leases are counted: that since the machine started,
// its sleep included. All processes of a machine see the same, and nobody can set it.
func BootClock() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return wallClock()
	}
	return time.Duration(t.Nano())
}
