package agent

import (
	"time"

	"golang.org/x/sys/unix"
)

// bootClock is the time since the machine started, its sleep included.
func bootClock() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return wallClock()
	}
	return time.Duration(t.Nano())
}
