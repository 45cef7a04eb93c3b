//go:build linux || darwin

// Package bootclock has a clock that includes the time that the machine sleeps, unlike the monotonic clock of package time.
package bootclock

import (
	"time"

	"golang.org/x/sys/unix"
)

// Now returns the time since the machine booted, including the time that it slept. It is the same in all processes, and cannot be set.
func Now() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(clock, &t); err != nil {
		return time.Duration(time.Now().UnixNano())
	}
	return time.Duration(t.Nano())
}
