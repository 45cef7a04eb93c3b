//go:build !linux && !darwin

// Package bootclock has a clock that includes the time that the machine sleeps, unlike the monotonic clock of package time.
package bootclock

import "time"

// Now returns the time of day, which includes the time that the machine sleeps, but jumps when it is set.
func Now() time.Duration { return time.Duration(time.Now().UnixNano()) }
